"""The ledger: what stands fixed about runs, behind one interface.

    run ──< attempt ──< rank (acks) ──< stream (lease)
     ├────< seal (step -> cursor, plan digest, sync flag)
     ├────< commit (step -> cursor, checkpoint)
     ├────< offer, sync, sync request, hold          see `sync_interface`
     └────< event

Every method is one transaction. What is refused and why: `ledger.rules`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from dataserver.cursor import Cursor
from dataserver.ledger.history import Commit, Event
from dataserver.ledger.steps import AttemptKey, Progress, ProposedSeal, Seal
from dataserver.ledger.sync_interface import SyncLedger
from dataserver.ledger.totals import SealedTotals
from dataserver.planning.stages import Stage
from dataserver.run_spec import BatchSpec, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One life of a run's trainer job; fixed by `begin_attempt`, except for its lease.

    `attempt_id` is 32 hexadecimal digits that nobody can guess. Times are seconds since 1970 by the ledger's clock.
    """

    number: int
    attempt_id: str
    base: Cursor
    version: int
    world_size: int
    dp_world_size: int
    batch: BatchSpec
    holder: str
    begin_time: float
    lease_expire_time: float

    @property
    def key(self) -> AttemptKey:
        """What names it."""
        return AttemptKey(number=self.number, attempt_id=self.attempt_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStage:
    """A stage of a run; `order_fingerprint` covers the stages up to this one, with their stores.

    `epoch_samples`: of one epoch, as its server counted them.
    """

    stage: Stage
    order_fingerprint: str
    epoch_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as it stands.

    `stages` has all of them; the first is `spec.order` under `order_fingerprint`.

    `last_attempt` is the highest number ever issued; `attempt` is None before the first attempt
    and after a rewind. `acked_steps[w]` is what world rank w acknowledged last, and
    `consumed_step` their minimum (both start at the attempt's base). `totals`: what the steps
    up to `sealed_step` add up to, and `sealed`: the cursor after them; None where none of them is in the ledger.
    `read_time`: when it stood so, by the clock of all leases.
    """

    name: str
    uid: str
    spec: RunSpec
    order_fingerprint: str
    stages: tuple[RunStage, ...]
    create_time: float
    last_attempt: int
    attempt: Attempt | None
    committed: Cursor
    sealed_step: int
    consumed_step: int
    acked_steps: tuple[int, ...]
    ended: bool
    sealed: Cursor | None
    totals: SealedTotals | None
    read_time: float = field(compare=False)


class Ledger(SyncLedger, Protocol):
    """All methods block on the database, and raise the classes of `dataserver.errors`."""

    def create_run(self, name: str, spec: RunSpec, order_fingerprint: str, *, epoch_samples: int) -> tuple[Run, bool]:
        """The run of that name, created (True) or found (False) with the same order.

        Another order raises `RunConflictError` with the fields that differ. Another batch spec becomes the run's,
        for attempts to come that bring none (event `batch_changed`).
        """

    def amend_run(self, name: str, added: RunStage, before: str) -> tuple[Run, bool]:
        """Append a stage (True), or find it there already (False). `before`: fingerprint of the stage before it.

        Raises `RunConflictError` for another order under the same first step, `PreconditionError` for a first step
        that is sealed or lies inside a window under way, `InvalidSpecError` for an order that does not fit the
        batch specs in use, `UnavailableError` when another stage was appended meanwhile.
        """

    def get_run(self, name: str) -> Run:
        """Raises `RunNotFoundError`."""

    def list_runs(self, limit: int, after: str = "") -> list[Run]:
        """At most `limit` runs whose names come after `after`, by name."""

    def delete_run(self, name: str) -> None:
        """Forget the run. Raises `AttemptAliveError` while an attempt is alive."""

    def begin_attempt(
        self,
        name: str,
        *,
        resume: bool,
        cursor: Cursor | None,
        version: int | None,
        world_size: int,
        dp_world_size: int,
        batch: BatchSpec | None,
        holder: str,
        take_over: bool,
    ) -> Attempt:
        """Fix a new attempt and rewind the run to its base (rules 1 to 5)."""

    def get_attempt(self, name: str, number: int) -> Attempt:
        """An attempt of the run, the current one or one before. Raises `OutOfRangeError` for a number never issued."""

    def rewind_run(self, name: str, version: int) -> Run:
        """Go back to `version` and fence every attempt so far."""

    def open_stream(
        self,
        name: str,
        *,
        attempt: AttemptKey,
        world_rank: int,
        dp_rank: int,
        next_step: int,
        stream_id: str,
        takes_offers: bool = False,
        acked_offer: int = 0,
    ) -> Run:
        """Check an open against the attempt's row and note the rank as alive (rules 2, 3, 10).

        `stream_id`: made by the serving process, for this stream alone. Idempotent by it. The attempt's first open
        with `takes_offers` seals its opening offer; a rank that comes back names the last offer that it is done with
        (rule 15).
        """

    def renew_leases(self, stream_ids: Collection[str]) -> None:
        """Push out the leases of these streams, which the caller holds. One that is closed stays closed."""

    def close_stream(self, stream_id: str) -> None:
        """Note that a stream is gone, for good. Idempotent; one that the ledger never heard of is no error."""

    def seal(self, run_uid: str, attempt: AttemptKey, proposed: ProposedSeal) -> Seal:
        """Fix a step, or read how it was fixed (rules 6, 8, 9, 15, 22).

        Raises `OutdatedPlanError`, `StaleAttemptError`, `PlanMismatchError`, or `PreconditionError` when the step
        before is not sealed.
        """

    def get_seal(self, run_uid: str, step: int) -> Seal | None:
        """The surviving seal of a step."""

    def record_acks(self, run_uid: str, attempt: AttemptKey, acks: Mapping[int, int]) -> Progress:
        """Note world rank -> step, cumulatively (rules 10, 11). An ack beyond the sealed steps is refused."""

    def progress(self, run_uid: str) -> Progress:
        """How far the current attempt is. Raises `StaleAttemptError` when there is none."""

    def commit_cursor(self, name: str, attempt: AttemptKey, cursor: Cursor, checkpoint_uri: str) -> Run:
        """Note that a checkpoint holds everything up to `cursor`; idempotent, never moves down (rules 3, 5, 11)."""

    def cursor_at(self, name: str, version: int | None) -> tuple[Cursor, str]:
        """Cursor and checkpoint URI (or "") of a surviving version; the committed one for None.

        Raises `VersionNotFoundError`.
        """

    def list_commits(self, name: str, limit: int, after_step: int = -1) -> list[Commit]:
        """Surviving commits above `after_step`, by step."""

    def list_events(self, name: str, limit: int, after: int = 0) -> list[Event]:
        """Events above `after`, the oldest first."""

    def close(self) -> None:
        """Let go of the database. Idempotent."""
