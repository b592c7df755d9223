"""What there is besides the ledger. All values are immutable and hashable: a world is a state."""

from dataclasses import dataclass, replace

from dataserver.cursor import Cursor
from dataserver.ledger import AttemptKey


@dataclass(frozen=True, slots=True)
class Receipt:
    """A step as a rank got it; with `ended`, the news that there is none."""

    step: int
    digest: str
    flag: bool
    end: Cursor
    samples: tuple[int, ...]
    last: bool
    ended: bool

    @property
    def compared(self) -> tuple[object, ...]:
        """What the ranks compare in their all-reduce."""
        return self.step, self.digest, self.flag, "end of run" if self.ended else "step"


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank of a job: its stream, the steps that it has but has not trained on, and the last one that it applied.

    `opens` counts its streams, and so names the one that is open.
    """

    applied: int
    server: int | None = None
    opens: int = 0
    dp_rank: int = 0
    next_step: int = 0
    receipts: tuple[Receipt, ...] = ()
    left: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A trainer job under one attempt. `weights` are the samples in them, `cursor` belongs to them.

    `way` has the cursor of each step that made the weights, where the scenario asks for it.
    """

    attempt: AttemptKey
    base: Cursor
    dp_world_size: int
    cursor: Cursor
    weights: tuple[int, ...]
    ranks: tuple[Rank, ...]
    last: bool = False
    saved_step: int = 0
    way: tuple[Cursor, ...] = ()

    @property
    def step(self) -> int:
        return self.cursor.step

    def with_rank(self, number: int, **fields: object) -> "Job":
        rank = replace(self.ranks[number], **fields)
        return replace(self, ranks=(*self.ranks[:number], rank, *self.ranks[number + 1 :]))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights with the cursor that belongs to them, saved atomically."""

    cursor: Cursor
    weights: tuple[int, ...]
    way: tuple[Cursor, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """Something that was sent and may arrive at any time, twice, or never."""

    kind: str
    attempt: AttemptKey
    rank: int = 0
    stream_id: str = ""
    dp_rank: int = 0
    server: int = 0
    step: int = 0
    cursor: Cursor | None = None


@dataclass(frozen=True, slots=True)
class World:
    """A state; `ledger` and `backup` are the ledger's, by number.

    `left` counts what may still happen of each kind of mishap. `known` has, by server, where it knows the later stage
    to begin.
    """

    ledger: int
    jobs: tuple[Job | None, ...]
    left: tuple[tuple[str, int], ...]
    checkpoints: tuple[Checkpoint, ...] = ()
    under_way: frozenset[Message] = frozenset()
    now: float = 0.0
    promised: frozenset[int] = frozenset()
    displacements: int = 0
    backup: int | None = None
    restores: int = 0
    silent: bool = False
    finished: bool = False
    known: tuple[tuple[int, int], ...] = ()

    def may(self, mishap: str) -> bool:
        return dict(self.left).get(mishap, 0) > 0

    def spend(self, mishap: str) -> "World":
        return replace(self, left=tuple((kind, count - (kind == mishap)) for kind, count in self.left))

    def known_by(self, server: int) -> int:
        return dict(self.known).get(server, 0)

    def learn(self, server: int, first_step: int) -> "World":
        return replace(self, known=tuple(sorted((dict(self.known) | {server: first_step}).items())))

    def with_job(self, holder: int, job: Job | None) -> "World":
        return replace(self, jobs=(*self.jobs[:holder], job, *self.jobs[holder + 1 :]))

    def send(self, *messages: Message) -> "World":
        return replace(self, under_way=self.under_way | set(messages))
