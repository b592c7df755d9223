"""Weights on demand, as values: versions, syncs, offers, and who is asked to carry them over.

Times are seconds since 1970 by the ledger's clock.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """One set of weights: after a rewind the retrained version 7 is another one, made by another attempt."""

    attempt: int
    number: int

    def __str__(self) -> str:
        """What engines are labelled with."""
        return f"{self.attempt}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The version that `ATTEMPT.NUMBER` names; None for any other text."""
        attempt, dot, number = text.partition(".")
        if not (dot and attempt.isdecimal() and number.isdecimal()):
            return None
        return cls(attempt=int(attempt), number=int(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorAddress:
    """Where a run's orchestrator is reached (`HOST:PORT`); a higher epoch has taken over from a lower one."""

    epoch: int
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorLease:
    """The right to be a run's orchestrator, until `expire_time` or for as long as it is renewed."""

    orchestrator: OrchestratorAddress
    holder: str
    expire_time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The newest weights, offered outside a step, the same for every rank.

    `number`: 0 before the attempt's first step, then 1, 2, … after its last. `orchestrator`: whom to hand the weights
    over by; None where none held the lease, or nothing is to be handed over.
    """

    number: int
    version: PolicyVersion
    sync_weights: bool
    orchestrator: OrchestratorAddress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownHold:
    """Why a stream is kept open after the last step; nothing is offered after `deadline`, None where it is not set."""

    reason: str
    deadline: float | None


# In a `WeightSync`.
MAX_DETAIL_LENGTH = 4096


class SyncOutcome(StrEnum):
    """How a sync ended."""

    LANDED = "landed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSync:
    """A sync that has ended. `sync_id`: 32 hexadecimal digits, made by the trainer.

    `seconds`: from the prepare to the end. `stall_seconds`: for how long the trainer's steps stood still.
    `engines`: those that serve the version now. `report_time` is the ledger's to set.
    """

    sync_id: str
    version: PolicyVersion
    outcome: SyncOutcome
    seconds: float = 0.0
    stall_seconds: float = 0.0
    engines: tuple[str, ...] = ()
    detail: str = ""
    report_time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A lease under which every sealed step asks for a sync."""

    hold_id: str
    expire_time: float


class RequestOutcome(StrEnum):
    """What becomes of a request: its seal will say so, it has landed, or it comes too late."""

    ACCEPTED = "accepted"
    LANDED = "landed"
    ALREADY_SEALED = "already_sealed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """The answer to a request. `version`: asked for, landed, or the earliest that can be; None for an accepted LAST."""

    outcome: RequestOutcome
    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncState:
    """All about a run's syncs.

    `attempt`: the current one, 0 without. `requested`: versions that were asked for and may yet land, the first 1000;
    with `last_requested` the run's last among them. With `last_sealed`, that is `sealed_step`. `landed`: the newest
    surviving version that did. `syncs`: of surviving versions, the newest first. `max_steps`: highest version that can
    exist, None where the run spec has no bound.
    """

    run: str
    attempt: int
    sealed_step: int
    consumed_step: int
    requested: tuple[int, ...]
    last_requested: bool
    last_sealed: bool
    ended: bool
    shutdown_deadline: float | None
    holds: tuple[Hold, ...]
    lease: OrchestratorLease | None
    landed: PolicyVersion | None
    syncs: tuple[WeightSync, ...]
    max_steps: int | None
