"""The values of one sync: what is moved, where it is met, what became of it."""

import math
from dataclasses import dataclass
from enum import StrEnum


class TransferError(Exception):
    """A transfer came to nothing; the message says why. It never leaves this package."""


class Outcome(StrEnum):
    """How a sync ended."""

    LANDED = "landed"
    """Engines serve the version."""
    FAILED = "failed"
    """The transfer began and did not come to its end."""
    SKIPPED = "skipped"
    """The transfer was refused, or never began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A weight as it is sent. `name`: by which vLLM loads it. `dtype`: `float32`, `bfloat16` or `float16`."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * (4 if self.dtype == "float32" else 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """One transfer: its id, 32 hexadecimal digits, names it wherever it is spoken of.

    `attempt`, `number`: the policy version. `run`: the run's name.
    """

    sync_id: str
    run: str
    attempt: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestrator:
    """Whom to hand over by. `epoch` counts the orchestrators of the run. `address`: HOST:PORT."""

    epoch: int
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Where trainer and engines meet: HOST:PORT of the group that rank 0 hosts, or a directory."""

    rendezvous: str = ""
    directory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The engines wait. `group_size`: rank 0 and every engine's workers. `send_s`: until when all must be sent."""

    sync: Sync
    group_size: int
    send_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReady:
    """The transfer does not take place. `refused`: the orchestrator began nothing, so there is nothing to abort."""

    detail: str
    refused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """A sync that has ended. `stall_s`: for how long training stood still; `seconds`: from the prepare to the end.

    `size`: bytes that were to move. `engines`: those that serve the version now.
    """

    sync: Sync
    outcome: Outcome
    size: int
    stall_s: float
    seconds: float
    engines: tuple[str, ...] = ()
    detail: str = ""
