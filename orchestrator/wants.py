"""What evals want of the weights. `demand` carries it to the data server."""

from dataclasses import dataclass
from typing import Protocol

from dataserver.weight_sync import SyncState


@dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """Which weights evals want now.

    `versions`: to be measured and not landed yet, some of those that are due next among them, so that each is asked
    for before its step is sealed. One that is missed is asked for again, as the earliest that is still possible: the
    wish stands until it is taken out, and what lands in its place is for the wisher to accept.
    `last`: the run's last version. `hold`: a live eval is queued or runs, or a pinned one waits for its version to land
    and wants no step to pass it by: every step that is sealed brings its weights.
    """

    versions: frozenset[int] = frozenset()
    last: bool = False
    hold: bool = False


class Wishers(Protocol):
    """Evals, as the orchestrator's core knows them."""

    def wants(self, state: SyncState) -> Wants:
        """What they want, of the run as it stands. Called after every change of it; asks nobody, takes no time."""

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or runs: then the orchestrator may end, once the run has."""
