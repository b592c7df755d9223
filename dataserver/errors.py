"""Every fault that the data server reports, as one tree.

    DataServerError
    ├── InvalidRequestError        a field is missing, malformed or out of range
    ├── InvalidSpecError           a run spec cannot be carried out
    ├── InvalidConfigError         a configuration cannot be carried out
    ├── RunNotFoundError
    ├── StoreNotFoundError
    ├── OutOfRangeError            no such step or row
    ├── VersionNotFoundError       the ledger does not know that version
    ├── RunConflictError           a run of that name has another order
    ├── PreconditionError          the state of the run forbids the call
    │   ├── StaleAttemptError      a higher attempt exists
    │   ├── AttemptMismatchError   an open does not match the attempt's row
    │   ├── AttemptAliveError      an attempt of this run is alive
    │   ├── HolderFencedError      the launcher instance was displaced by another
    │   ├── ForeignCursorError     a cursor belongs to another order
    │   ├── AlreadyCommittedError  a fresh start on a run with committed steps
    │   ├── PlanMismatchError      another plan was sealed than is computed here
    │   ├── OutdatedPlanError      a plan was made before the run's newest stage was known
    │   └── OrchestratorAliveError another orchestrator of this run is alive
    ├── StoreRefusedError          a store breaks a rule of admission
    ├── DamagedError               never retried
    │   ├── StoreDamagedError      a store changed after its admission
    │   └── ChecksumMismatchError  bytes arrived damaged
    ├── UnavailableError           the only one that is retried
    │   └── StoreNotReadyError     a store is being rendered
    ├── WaitExpiredError           a wait ran into its deadline
    ├── UnauthenticatedError
    └── InternalError              the server met a fault of its own

`REASONS` is the one table between these classes, the reasons on the wire
(`dataserver.v1.ErrorReason`) and the gRPC status codes. A client raises the
class that the server raised.
"""

from dataclasses import dataclass


class DataServerError(Exception):
    """Base of all faults; its message says what is wrong, with which value, and what to do.

    `details` are facts for programs (row, shard, attempt, …); they travel with the error.
    """

    def __init__(self, message: str, **details: str | int) -> None:
        super().__init__(message)
        self.message = message
        self.details = {name: str(value) for name, value in details.items()}


class InvalidRequestError(DataServerError):
    """A field of a request is missing, malformed or out of range."""


class InvalidSpecError(DataServerError):
    """A run spec cannot be carried out with these stores."""


class InvalidConfigError(DataServerError):
    """A configuration cannot be carried out."""


class RunNotFoundError(DataServerError):
    """There is no run of that name."""


class StoreNotFoundError(DataServerError):
    """There is no store of that name."""


class OutOfRangeError(DataServerError):
    """There is no such step or row."""


class VersionNotFoundError(DataServerError):
    """The ledger does not know that version."""


class RunConflictError(DataServerError):
    """A run of that name has another order."""


class PreconditionError(DataServerError):
    """The state of the run, or of the ledger itself, forbids the call."""


class StaleAttemptError(PreconditionError):
    """A higher attempt exists; this one is over for good."""


class AttemptMismatchError(PreconditionError):
    """An open does not match what the attempt's row fixed."""


class AttemptAliveError(PreconditionError):
    """An attempt of this run is alive and was not to be displaced."""


class HolderFencedError(PreconditionError):
    """The launcher instance was displaced by another and may not begin again."""


class ForeignCursorError(PreconditionError):
    """A cursor belongs to another order."""


class AlreadyCommittedError(PreconditionError):
    """A fresh start was asked of a run that has committed steps."""


class PlanMismatchError(PreconditionError):
    """This server computes another plan than the one that was sealed."""


class OutdatedPlanError(PreconditionError):
    """A plan was made by a server that did not know the run's newest stage yet; it learns of it and plans again."""


class OrchestratorAliveError(PreconditionError):
    """Another orchestrator holds the run's lease."""


class StoreRefusedError(DataServerError):
    """A store breaks a rule of admission."""


class DamagedError(DataServerError):
    """Bytes are not what they were; trying again cannot help."""


class StoreDamagedError(DamagedError):
    """A store changed after it was admitted, or its bytes are damaged."""


class ChecksumMismatchError(DamagedError):
    """Bytes arrived damaged."""


class UnavailableError(DataServerError):
    """The server is ending, not yet ready, or out of reach."""


class StoreNotReadyError(UnavailableError):
    """A store is being rendered; the message says how far it is, and the details change as it goes on."""


class WaitExpiredError(DataServerError):
    """A wait ran into its deadline; the message says for whom and since when."""


class UnauthenticatedError(DataServerError):
    """The call carries no credentials, or wrong ones."""


class InternalError(DataServerError):
    """The server met a fault of its own; its log has the trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """How one class of error is named on the wire, and which gRPC status code carries it."""

    error: type[DataServerError]
    name: str
    status: str


REASONS: tuple[Reason, ...] = tuple(
    Reason(error=error, name=name, status=status)
    for error, name, status in (
        (InvalidRequestError, "INVALID_REQUEST", "INVALID_ARGUMENT"),
        (InvalidSpecError, "INVALID_SPEC", "INVALID_ARGUMENT"),
        (InvalidConfigError, "INVALID_CONFIG", "INVALID_ARGUMENT"),
        (RunNotFoundError, "RUN_NOT_FOUND", "NOT_FOUND"),
        (StoreNotFoundError, "STORE_NOT_FOUND", "NOT_FOUND"),
        (OutOfRangeError, "OUT_OF_RANGE", "OUT_OF_RANGE"),
        (VersionNotFoundError, "VERSION_NOT_FOUND", "NOT_FOUND"),
        (RunConflictError, "RUN_CONFLICT", "ALREADY_EXISTS"),
        (PreconditionError, "FAILED_PRECONDITION", "FAILED_PRECONDITION"),
        (StaleAttemptError, "STALE_ATTEMPT", "FAILED_PRECONDITION"),
        (AttemptMismatchError, "ATTEMPT_MISMATCH", "FAILED_PRECONDITION"),
        (AttemptAliveError, "ATTEMPT_ALIVE", "FAILED_PRECONDITION"),
        (HolderFencedError, "HOLDER_FENCED", "FAILED_PRECONDITION"),
        (ForeignCursorError, "FOREIGN_CURSOR", "FAILED_PRECONDITION"),
        (AlreadyCommittedError, "ALREADY_COMMITTED", "FAILED_PRECONDITION"),
        (PlanMismatchError, "PLAN_MISMATCH", "FAILED_PRECONDITION"),
        (OutdatedPlanError, "OUTDATED_PLAN", "FAILED_PRECONDITION"),
        (OrchestratorAliveError, "ORCHESTRATOR_ALIVE", "FAILED_PRECONDITION"),
        (StoreRefusedError, "STORE_REFUSED", "FAILED_PRECONDITION"),
        (StoreDamagedError, "STORE_DAMAGED", "DATA_LOSS"),
        (ChecksumMismatchError, "CHECKSUM_MISMATCH", "DATA_LOSS"),
        (UnavailableError, "UNAVAILABLE", "UNAVAILABLE"),
        (StoreNotReadyError, "STORE_NOT_READY", "UNAVAILABLE"),
        (WaitExpiredError, "WAIT_EXPIRED", "DEADLINE_EXCEEDED"),
        (UnauthenticatedError, "UNAUTHENTICATED", "UNAUTHENTICATED"),
        (InternalError, "INTERNAL", "INTERNAL"),
    )
)
