"""What there is besides the ledger. All values are immutable and hashable: a world is a state."""

from dataclasses import dataclass, replace

from dataserver.ledger import AttemptKey
from dataserver.weight_sync import Offer, SyncOutcome


@dataclass(frozen=True, slots=True)
class Chance:
    """What a rank holds: a step or an offer, with the stamp that all ranks must see alike."""

    kind: str
    number: int
    version: int
    sync_weights: bool
    epoch: int


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank: whether it streams, what it has got and not met the others in, and what it is done with."""

    streams: bool = False
    plain: bool = False
    opened: bool = False
    chance: Chance | None = None
    step: int = 0
    offer: int = 0
    acked_offer: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Word of a sync, under way."""

    sync: int
    attempt: int
    version: int
    outcome: SyncOutcome


@dataclass(frozen=True, slots=True)
class World:
    """A state; `ledger` is the ledger's, by number.

    `engines`: (attempt, version, sync) that engines have served, in truth; `heard`: what the ledger was told of which
    sync. `syncs_before`: those before this attempt. `stamped`: versions that ranks met to hand over.
    `accepted`: versions that a request was promised. `beliefs`: by orchestrator, the epoch of its lease and until when
    it believes to hold it. `epochs`: all that were ever granted, with whom they went to.
    """

    ledger: int
    left: tuple[tuple[str, int], ...]
    attempt: AttemptKey | None = None
    base: int = 0
    ranks: tuple[Rank, ...] = ()
    saved: int = 0
    now: float = 0.0
    syncs: int = 0
    syncs_before: int = 0
    engines: frozenset[tuple[int, int, int]] = frozenset()
    heard: frozenset[tuple[int, SyncOutcome]] = frozenset()
    stamped: frozenset[int] = frozenset()
    reports: frozenset[Report] = frozenset()
    last_accepted: bool = False
    accepted: frozenset[int] = frozenset()
    beliefs: tuple[tuple[str, int, float], ...] = ()
    epochs: frozenset[tuple[int, str]] = frozenset()
    finished: bool = False

    def may(self, mishap: str) -> bool:
        return dict(self.left).get(mishap, 0) > 0

    def spend(self, mishap: str) -> "World":
        return replace(self, left=tuple((kind, count - (kind == mishap)) for kind, count in self.left))

    def with_rank(self, number: int, **fields: object) -> "World":
        rank = replace(self.ranks[number], **fields)
        return replace(self, ranks=(*self.ranks[:number], rank, *self.ranks[number + 1 :]))


def chance_of(offer: Offer) -> Chance:
    epoch = 0 if offer.orchestrator is None else offer.orchestrator.epoch
    return Chance("offer", offer.number, offer.version.number, offer.sync_weights, epoch)
