"""Steps as the ledger fixes them, by the key of the attempt that they belong to."""

from dataclasses import dataclass

from dataserver.cursor import Cursor
from dataserver.ledger.totals import SealedTotals, StepServed
from dataserver.weight_sync import OrchestratorAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptKey:
    """Names an attempt. The number is for people; `attempt_id` tells two attempts apart that have one number.

    Numbers repeat when a run is deleted and created again, and when a ledger is restored from an older copy.
    """

    number: int
    attempt_id: str

    def __str__(self) -> str:
        return f"{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """A step, fixed. With `end_of_run`, the fact that step `step` does not exist, and without `totals`.

    `orchestrator`: whom to hand the weights over by, with `sync_weights`; None where none held the lease.
    """

    step: int
    attempt: int
    end: Cursor
    plan_digest: str
    planner_version: int
    sync_weights: bool
    last: bool
    end_of_run: bool
    totals: SealedTotals | None = None
    orchestrator: OrchestratorAddress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedSeal:
    """What a server asks to have sealed. The ledger adds the stamp. `served` is None at the end of the run.

    `stages`: the fingerprint of the last stage that the server knew when it planned, and so of all of them.
    """

    step: int
    end: Cursor
    plan_digest: str
    planner_version: int
    last: bool
    end_of_run: bool
    stages: str
    served: StepServed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The little that pacing polls."""

    attempt: AttemptKey
    sealed_step: int
    acked_steps: tuple[int, ...]
