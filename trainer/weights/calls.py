"""The orchestrator's WeightTransferService, as rank 0 calls it.

Every call has a deadline, is sent once and can be ended by an abort. An orchestrator that is away
is no reason to wait: it asks again when it is back.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from dataserver.client.connection import Channels, ConnectionSettings
from dataserver.hosting.credentials import read_token
from dataserver.v1 import policy_version_pb2
from orchestrator.v1 import weight_transfer_service_pb2 as transfers
from trainer.weights.outgoing import Outgoing
from trainer.weights.sync import Meeting, NotReady, Ready, Sync, TransferError
from trainer.weights.underway import Underway
from trainer.weights_config import ABORT_S, TransportKind, WeightsConfig

AnswerT = TypeVar("AnswerT", bound=Message)

SERVICE: Final = "/orchestrator.v1.WeightTransferService"
TRANSPORT: Final = {
    TransportKind.FILESYSTEM: transfers.TRANSPORT_FILESYSTEM,
    TransportKind.GLOO: transfers.TRANSPORT_GLOO,
    TransportKind.NCCL: transfers.TRANSPORT_NCCL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """What the engines said: who serves the version now, and why others do not."""

    engines: tuple[str, ...]
    detail: str


class OrchestratorCalls:
    """Calls to one orchestrator at `address`, which connects at the first. Close it after use."""

    def __init__(self, address: str, config: WeightsConfig, underway: Underway) -> None:
        self._address = address
        self._config = config
        self._underway = underway
        token = None if config.orchestrator.token_file is None else read_token(config.orchestrator.token_file)
        settings = ConnectionSettings(endpoints=(address,), token=token, ca=config.orchestrator.ca_file)
        self._channels = Channels(settings)
        self._metadata = settings.metadata

    def prepare(
        self, sync: Sync, outgoing: Outgoing, meeting: Meeting, *, attempt_id: str, epoch: int, trainer_address: str
    ) -> Ready | NotReady:
        """Ask for engines. Raises `TransferError` when no answer comes."""
        request = transfers.PrepareTransferRequest(
            run=sync.run,
            version=policy_version_pb2.PolicyVersion(attempt=sync.version.attempt, number=sync.version.number),
            attempt_id=attempt_id,
            sync_id=sync.sync_id,
            epoch=epoch,
            transport=TRANSPORT[self._config.transport],
            tensors=[transfers.TensorSpec(name=s.name, dtype=s.dtype, shape=s.shape) for s in outgoing.specs],
            bucket_bytes=self._config.bucket_bytes,
            trainer_address=trainer_address,
            rendezvous=meeting.rendezvous,
            directory=meeting.directory,
        )
        answer = self._call(request, transfers.PrepareTransferResponse, self._config.prepare_s)
        if answer.WhichOneof("answer") != "ready":
            reason = transfers.RefusalReason.Name(answer.refused.reason).removeprefix("REFUSAL_REASON_").lower()
            never = answer.refused.reason == transfers.REFUSAL_REASON_TRANSPORT
            return NotReady(detail=f"refused ({reason}): {answer.refused.detail}", refused=True, never=never)
        send_s = self._config.send_s
        if answer.ready.HasField("expires_in"):
            send_s = min(send_s, answer.ready.expires_in.ToTimedelta().total_seconds())
        return Ready(sync=sync, group_size=answer.ready.group_size, send_s=send_s)

    def commit(self, sync: Sync, checksum: str) -> Landing:
        """Say that all was sent, and wait for the engines. Raises `TransferError` when no answer comes."""
        request = transfers.CommitTransferRequest(run=sync.run, sync_id=sync.sync_id, checksum=checksum)
        answer = self._call(request, transfers.CommitTransferResponse, self._config.commit_s)
        return Landing(
            engines=tuple(engine.engine for engine in answer.engines if engine.landed),
            detail="; ".join(f"{engine.engine}: {engine.detail}" for engine in answer.engines if not engine.landed),
        )

    def abort(self, sync: Sync, reason: str) -> None:
        """Give the transfer up, where the orchestrator is there to hear it."""
        request = transfers.AbortTransferRequest(run=sync.run, sync_id=sync.sync_id, reason=reason)
        try:
            self._method(request, transfers.AbortTransferResponse)(request, timeout=ABORT_S, metadata=self._metadata)
        except grpc.RpcError:
            return

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._channels.close()

    def _method(self, request: Message, answer: type[Message]) -> Any:  # noqa: ANN401 - with futures, which its type lacks
        name = type(request).__name__.removesuffix("Request")
        channel = self._channels.channel(self._address)
        return channel.unary_unary(f"{SERVICE}/{name}", type(request).SerializeToString, answer.FromString)

    def _call(self, request: Message, answer: type[AnswerT], timeout_s: float) -> AnswerT:
        pending = self._method(request, answer).future(request, timeout=timeout_s, metadata=self._metadata)
        with self._underway.waiting(lambda _why: pending.cancel()):
            try:
                answered: AnswerT = pending.result()
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                self._underway.check()
                said = error.details() if isinstance(error, grpc.Call) else str(error)
                code = error.code().name if isinstance(error, grpc.Call) else "CANCELLED"
                name = type(request).__name__.removesuffix("Request")
                raise TransferError(f"{name}: orchestrator {self._address}: {code}: {said}") from error
            return answered
