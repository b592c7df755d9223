"""Snapshots of rows, as the rules judge them and the transactions pass them on."""

from dataclasses import dataclass

from dataserver.cursor import Cursor
from dataserver.ledger.interface import AttemptKey
from dataserver.run_spec import BatchSpec, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run's row. `spec` is JSON: most transactions never read it."""

    uid: str
    name: str
    spec: str
    order_fingerprint: str
    create_time: float
    last_attempt: int
    current_attempt: AttemptKey | None
    committed: Cursor
    sealed_step: int
    ended: bool

    def read_spec(self) -> RunSpec:
        """The run's spec."""
        return RunSpec.model_validate_json(self.spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """A rank of the current attempt. `dp_rank` is None until its first open fixed it."""

    world_rank: int
    dp_rank: int | None
    acked_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginRequest:
    """The arguments of `begin_attempt`, as given, and the id that the attempt is to have."""

    resume: bool
    cursor: Cursor | None
    version: int | None
    world_size: int
    dp_world_size: int
    batch: BatchSpec | None
    holder: str
    take_over: bool
    attempt_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """The arguments of `open_stream`, as given."""

    attempt: AttemptKey
    world_rank: int
    dp_rank: int
    next_step: int
    stream_id: str
