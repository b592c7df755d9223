"""How the ranks hand a version over, through files, as the contract says.

rank 0 prepares ── all ranks write their files ── all agree ── rank 0 commits beside training, and reports
"""

import shutil
import threading
import time
import uuid
from pathlib import Path

from crashlab.collective import Collective
from crashlab.rank import RUN
from crashlab.weights import Consumed

from dataserver.client import AttemptInfo, DataClient
from dataserver.errors import DataServerError, StaleAttemptError
from dataserver.v1.policy_version_pb2 import PolicyVersion as PolicyVersionMessage
from dataserver.weight_sync import OrchestratorAddress, PolicyVersion, SyncOutcome, WeightSync
from orchestrator.v1 import weight_transfer_service_pb2 as messages
from synclab.calls import ABORT_S, COMMIT_S, PREPARE_S, Calls, LostError, prepare_request
from synclab.moments import Bomb, Moment
from synclab.versions import TENSORS, VersionBook, checksum_of, note_misnomer, safetensors, weights_of

NOBODY = "127.0.0.1:9"
"""Address of the trainer's service, which this trainer has not: nobody listens there."""


class Handing:
    """One rank's part in the handovers of one attempt."""

    def __init__(
        self,
        client: DataClient,
        attempt: AttemptInfo,
        collective: Collective,
        trigger: Bomb,
        directory: Path,
        calls: Calls,
    ) -> None:
        self._client = client
        self._attempt = attempt
        self._collective = collective
        self._trigger = trigger
        self._directory = directory
        self._calls = calls
        self._committing: threading.Thread | None = None

    def hand_over(self, version: PolicyVersion, orchestrator: OrchestratorAddress | None, mine: list[Consumed]) -> None:
        """Hand `version` over; `mine`: what this rank consumed. Engines cannot make it fail."""
        shares = self._collective.all_gather(mine)
        weights = weights_of(item for share in shares for item in share)
        first = self._collective.rank == 0
        started = time.monotonic()
        told = self._prepare(version, orchestrator, checksum_of(weights)) if first else None
        sync_id, directory, fault = self._collective.all_gather(told)[0]
        if directory is not None:
            self._write(directory, weights, version.number)
        self._collective.barrier()
        if first:
            self._committing = threading.Thread(
                target=self._conclude,
                args=(sync_id, version, orchestrator, directory, checksum_of(weights), fault, started),
            )
            self._committing.start()

    def finish(self) -> None:
        """Wait for the commit under way."""
        if self._committing is not None:
            self._committing.join()

    def _prepare(
        self, version: PolicyVersion, orchestrator: OrchestratorAddress | None, checksum: str
    ) -> tuple[str, Path | None, str]:
        self.finish()
        sync_id = uuid.uuid4().hex
        number = version.number
        VersionBook(self._directory / "versions.jsonl").note(str(version), checksum)
        if orchestrator is None:
            return sync_id, None, "there is no orchestrator"
        directory = self._directory / "weights" / sync_id
        directory.mkdir(parents=True)
        request = prepare_request(
            run=RUN,
            version=PolicyVersionMessage(attempt=version.attempt, number=number),
            attempt_id=self._attempt.attempt_id,
            sync_id=sync_id,
            epoch=orchestrator.epoch,
            trainer_address=NOBODY,
            directory=str(directory),
        )
        self._trigger.reach(Moment.BEFORE_PREPARE, number)
        with self._trigger.within(Moment.IN_PREPARE, number):
            try:
                answer = self._calls.call(orchestrator.address, "PrepareTransfer", request, PREPARE_S)
            except LostError as error:
                return sync_id, None, str(error)
        if answer.WhichOneof("answer") == "refused":
            return sync_id, None, f"refused: {answer.refused.detail}"
        self._trigger.reach(Moment.PREPARED, number)
        return sync_id, directory, ""

    def _write(self, directory: Path, weights: dict[str, bytes], number: int) -> None:
        """This rank's buckets; each appears whole."""
        for bucket, tensor in enumerate(TENSORS):
            if bucket % self._size == self._collective.rank:
                part = directory / f"{bucket}.part"
                part.write_bytes(safetensors(tensor, weights[tensor.name]))
                part.rename(directory / f"{bucket:05}.safetensors")
                self._trigger.reach(Moment.SENDING, number)

    @property
    def _size(self) -> int:
        return self._attempt.world_size

    def _conclude(
        self, sync_id: str, version: PolicyVersion, orchestrator: OrchestratorAddress | None, directory: Path | None,
        checksum: str, fault: str, started: float,
    ) -> None:  # fmt: skip
        """Commit, or give up; then tell the ledger."""
        engines: tuple[str, ...] = ()
        outcome = SyncOutcome.SKIPPED
        if directory is not None and orchestrator is not None:
            outcome = SyncOutcome.FAILED
            (directory / "weights.json").write_text("{}")
            self._trigger.reach(Moment.BEFORE_COMMIT, version.number)
            try:
                request = messages.CommitTransferRequest(run=RUN, sync_id=sync_id, checksum=checksum)
                with self._trigger.within(Moment.IN_COMMIT, version.number):
                    answer = self._calls.call(orchestrator.address, "CommitTransfer", request, COMMIT_S)
                engines = tuple(each.engine for each in answer.engines if each.landed)
            except LostError as error:
                fault = str(error)
            self._trigger.reach(Moment.COMMITTED, version.number)
        if engines:
            outcome = SyncOutcome.LANDED
        elif orchestrator is not None and not fault.startswith("refused"):
            self._give_up(orchestrator, sync_id, fault)
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        sync = WeightSync(
            sync_id=sync_id, version=version, outcome=outcome, seconds=time.monotonic() - started, engines=engines,
            detail=fault,
        )  # fmt: skip
        try:
            self._client.report_sync(RUN, sync)
        except StaleAttemptError as error:
            # A later attempt may have dropped the version. An earlier one that made it says that the name was wrong.
            if int(error.details["current_attempt"]) < version.attempt:
                note_misnomer(self._directory, str(error))
        except DataServerError as error:
            print(f"report of {sync_id}: {error}", flush=True)

    def _give_up(self, orchestrator: OrchestratorAddress, sync_id: str, reason: str) -> None:
        request = messages.AbortTransferRequest(run=RUN, sync_id=sync_id, reason=reason)
        try:
            self._calls.call(orchestrator.address, "AbortTransfer", request, ABORT_S)
        except LostError as error:
            print(f"abort of {sync_id}: {error}", flush=True)
