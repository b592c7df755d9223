"""The part of the ledger that is about syncs of weights: who wants them, what was offered, what became of it."""

from collections.abc import Mapping
from typing import Protocol

from dataserver.ledger.steps import AttemptKey, ProposedSeal, Seal
from dataserver.weight_sync import Hold, Offer, OrchestratorLease, ShutdownHold, SyncAnswer, SyncState, WeightSync


class SyncLedger(Protocol):
    """All methods block on the database, and raise the classes of `dataserver.errors`."""

    def request_sync(self, name: str, version: int | None, *, at_or_after: bool = False) -> SyncAnswer:
        """Ask for a version's weights, or for those of the run's last (None); rule 13.

        `at_or_after`: where that version is sealed already, for the earliest that is still possible.

        Raises `OutOfRangeError` for one beyond the end, `PreconditionError` where nothing is offered any more.
        """

    def hold_sync(self, name: str, hold_id: str, ttl_s: float) -> Hold:
        """Until released or expired, every seal says that weights move. Repeating renews."""

    def release_sync(self, name: str, hold_id: str) -> None:
        """End a hold; one that is gone already is no error."""

    def report_sync(self, name: str, sync: WeightSync) -> WeightSync:
        """Note how a sync ended, and return what stands there now (rule 14). Idempotent; `landed` wins.

        Raises `StaleAttemptError` for a version that does not survive.
        """

    def sync_state(self, name: str) -> SyncState:
        """All about the run's syncs."""

    def lease_orchestrator(self, name: str, holder: str, address: str, ttl_s: float) -> OrchestratorLease:
        """Be the run's orchestrator, or stay it (rule 16). Raises `OrchestratorAliveError` while another one is."""

    def release_orchestrator(self, name: str, holder: str) -> None:
        """Give the lease back; one that is gone already is no error."""

    def get_offer(self, run_uid: str, attempt: AttemptKey, number: int) -> Offer | None:
        """An offer of the current attempt that is sealed."""

    def ack_offers(self, run_uid: str, attempt: AttemptKey, acks: Mapping[int, int]) -> None:
        """Note world rank -> offer, cumulatively. One that is not sealed is refused."""

    def conclude(
        self, run_uid: str, attempt: AttemptKey, end: ProposedSeal, *, after: int, hold_s: float
    ) -> Offer | Seal | ShutdownHold:
        """What follows the last step and the offer `after` (0 before the first): one more offer, the end, or a wait.

        Offers and the end are sealed, so that every rank gets the same (rules 9 and 15). `hold_s`: how long the end may
        be put off, from the first call after every rank consumed the last step.
        """
