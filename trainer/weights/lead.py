"""What rank 0 does besides: it asks for engines, commits in the background, and reports.

    prepare ──ready──> (all ranks gather and send) ──> conclude ──all sent──> commit ─> landed or failed
       └──not ready──────────────────────────────────────┴──a fault──> abort ─> skipped or failed

Nothing that an orchestrator does, or fails to do, raises here. One sync at a time: the next
waits for the commit of the one before, whose deadline bounds that.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final
from uuid import uuid4

from dataserver.client import AttemptInfo
from dataserver.weight_sync import OrchestratorAddress, PolicyVersion, SyncOutcome, WeightSync
from trainer.weights.calls import OrchestratorCalls
from trainer.weights.outgoing import Outgoing
from trainer.weights.reports import ReportThread
from trainer.weights.sync import NotReady, Ready, Sync, TransferError
from trainer.weights.transport import Transport
from trainer.weights.underway import Underway
from trainer.weights_config import WeightsConfig

# At the end of a job; a report that is lost leaves the run waiting for its shutdown deadline.
REPORT_PATIENCE_S: Final = 30.0

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Attempted:
    """A sync from its prepare on. `calls`, `transport`: None before they were needed."""

    sync: Sync
    begin: float
    calls: OrchestratorCalls | None = None
    transport: Transport | None = None


class Lead:
    """Rank 0's part in the syncs of one attempt."""

    def __init__(
        self,
        *,
        config: WeightsConfig,
        run: str,
        attempt: AttemptInfo,
        outgoing: Outgoing,
        transport_of: Callable[[Sync], Transport],
        reports: ReportThread,
        trainer_address: str,
        underway: Underway,
    ) -> None:
        self._config = config
        self._run = run
        self._attempt = attempt
        self._outgoing = outgoing
        self._transport_of = transport_of
        self._reports = reports
        self._trainer_address = trainer_address
        self._underway = underway
        self._settled: SimpleQueue[WeightSync] = SimpleQueue()
        self._background: threading.Thread | None = None
        self._attempted: Attempted | None = None

    @property
    def transport(self) -> Transport:
        """That of the sync whose prepare was answered with ready."""
        if self._attempted is None or self._attempted.transport is None:
            raise TransferError("no transfer is under way")
        return self._attempted.transport

    def prepare(self, version: PolicyVersion, orchestrator: OrchestratorAddress | None) -> Ready | NotReady:
        """Ask for engines for `version`, which an earlier attempt may have made; raises nothing."""
        begin = time.monotonic()
        self._await_background()
        sync = Sync(sync_id=uuid4().hex, run=self._run, attempt=self._attempt.number, version=version)
        self._attempted = attempted = Attempted(sync=sync, begin=begin)
        self._underway.begin(sync)
        if orchestrator is None:
            return NotReady(detail="no orchestrator held the run's lease when the version was sealed", refused=True)
        try:
            return self._ask(attempted, orchestrator)
        except Exception as error:
            log.debug("prepare failed", exc_info=True)
            return NotReady(detail=_told(error), refused=False)

    def conclude(self, answer: Ready | NotReady, *, checksum: str, fault: str) -> None:
        """End the sync in the background: commit it, or give it up for `fault`. Training stood still until now."""
        attempted = self._attempted
        if attempted is None:
            return
        stall_s = time.monotonic() - attempted.begin
        self._attempted = None
        self._background = threading.Thread(
            target=self._end, args=(attempted, answer, checksum, fault, stall_s), name="weight commit", daemon=True
        )
        self._background.start()

    def settled(self) -> list[WeightSync]:
        """Syncs that have ended since the last call."""
        found = []
        while True:
            try:
                found.append(self._settled.get_nowait())
            except Empty:
                return found

    def finish(self) -> None:
        """Wait for the commit in flight, and deliver the reports."""
        self._await_background()
        self._reports.finish(REPORT_PATIENCE_S)

    def _ask(self, attempted: Attempted, orchestrator: OrchestratorAddress) -> Ready | NotReady:
        attempted.transport = self._transport_of(attempted.sync)
        meeting = attempted.transport.meet()
        attempted.calls = OrchestratorCalls(orchestrator.address, self._config, self._underway)
        return attempted.calls.prepare(
            attempted.sync,
            self._outgoing,
            meeting,
            attempt_id=self._attempt.attempt_id,
            epoch=orchestrator.epoch,
            trainer_address=self._trainer_address,
        )

    def _await_background(self) -> None:
        """Wait for the end of the sync before: its calls and what it asks of a storage have deadlines, so this has."""
        if self._background is not None:
            self._background.join()
            self._background = None

    def _end(self, attempted: Attempted, answer: Ready | NotReady, checksum: str, fault: str, stall_s: float) -> None:
        engines: tuple[str, ...] = ()
        if isinstance(answer, NotReady):
            outcome, detail = SyncOutcome.SKIPPED, answer.detail
        else:
            outcome, engines, detail = self._commit(attempted, checksum, fault)
        if attempted.calls is not None:
            if outcome is not SyncOutcome.LANDED and not (isinstance(answer, NotReady) and answer.refused):
                attempted.calls.abort(attempted.sync, detail)
            attempted.calls.close()
        if attempted.transport is not None:
            attempted.transport.leave()
        self._underway.end()
        self._tell(
            WeightSync(
                sync_id=attempted.sync.sync_id,
                version=attempted.sync.version,
                outcome=outcome,
                stall_seconds=stall_s,
                seconds=time.monotonic() - attempted.begin,
                engines=engines,
                detail=detail,
            )
        )

    def _commit(self, attempted: Attempted, checksum: str, fault: str) -> tuple[SyncOutcome, tuple[str, ...], str]:
        if fault or attempted.calls is None or attempted.transport is None:
            return SyncOutcome.FAILED, (), fault
        try:
            attempted.transport.complete(checksum)
            landing = attempted.calls.commit(attempted.sync, checksum)
        except Exception as error:
            log.debug("commit failed", exc_info=True)
            return SyncOutcome.FAILED, (), _told(error)
        return SyncOutcome.LANDED if landing.engines else SyncOutcome.FAILED, landing.engines, landing.detail

    def _tell(self, ended: WeightSync) -> None:
        told = log.info if ended.outcome is SyncOutcome.LANDED else log.warning
        told(
            "sync of version %s %s after %.2f s (training stood still for %.2f s)%s",
            ended.version, ended.outcome.value, ended.seconds, ended.stall_seconds,
            f": {ended.detail}" if ended.detail else "",
        )  # fmt: skip
        self._reports.add(ended)
        self._settled.put(ended)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, TransferError) else f"{type(error).__name__}: {error}"
