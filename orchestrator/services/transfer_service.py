"""WeightTransferService: how trainers hand weights over."""

import math
from collections.abc import Callable
from datetime import timedelta

from dataserver.errors import InvalidRequestError, PreconditionError
from dataserver.hosting.call import Call
from dataserver.weight_buckets import TensorSpec
from dataserver.weight_sync import PolicyVersion
from orchestrator.engines.interface import Transport
from orchestrator.transfers.coordinator import Coordinator
from orchestrator.transfers.values import PrepareRequest, Ready, RefusalReason, Refused
from orchestrator.v1 import weight_transfer_service_pb2 as pb2
from orchestrator.v1.weight_transfer_service_pb2_grpc import WeightTransferServiceServicer

TRANSPORTS = {
    pb2.TRANSPORT_FILESYSTEM: Transport.FILESYSTEM,
    pb2.TRANSPORT_GLOO: Transport.GLOO,
    pb2.TRANSPORT_NCCL: Transport.NCCL,
}
SYNC_ID_DIGITS = 32


class WeightTransferService(WeightTransferServiceServicer):
    """`coordinator` gives the one of the lease that lives, None without a lease."""

    def __init__(self, coordinator: Callable[[], Coordinator | None]) -> None:
        self._coordinator = coordinator

    async def PrepareTransfer(self, request: pb2.PrepareTransferRequest, context: Call) -> pb2.PrepareTransferResponse:
        """Pause engines and begin an update on each."""
        wanted = prepare_from_proto(request)
        coordinator = self._coordinator()
        if coordinator is None:
            detail = f"epoch {request.epoch} is over: this orchestrator does not hold the run's lease"
            return answer_to_proto(Refused(reason=RefusalReason.STALE, detail=detail))
        return answer_to_proto(await coordinator.prepare(wanted))

    async def CommitTransfer(self, request: pb2.CommitTransferRequest, context: Call) -> pb2.CommitTransferResponse:
        """All ranks sent all."""
        coordinator = self._coordinator()
        if coordinator is None:
            raise PreconditionError(f"sync {request.sync_id}: this orchestrator does not hold the run's lease any more")
        outcomes = await coordinator.commit(_sync_id(request.sync_id), request.checksum)
        engines = (pb2.EngineOutcome(engine=o.engine, landed=o.landed, detail=o.detail) for o in outcomes)
        return pb2.CommitTransferResponse(engines=engines)

    async def AbortTransfer(self, request: pb2.AbortTransferRequest, context: Call) -> pb2.AbortTransferResponse:
        """Give a transfer up."""
        coordinator = self._coordinator()
        if coordinator is not None:
            await coordinator.abort(_sync_id(request.sync_id), request.reason)
        return pb2.AbortTransferResponse()


def prepare_from_proto(request: pb2.PrepareTransferRequest) -> PrepareRequest:
    """Raises `InvalidRequestError` naming the field."""
    if request.transport not in TRANSPORTS:
        raise InvalidRequestError(f"transport {request.transport} is none: give filesystem, gloo or nccl")
    if not request.tensors or request.bucket_bytes <= 0:
        raise InvalidRequestError(
            f"tensors ({len(request.tensors)}) and bucket_bytes ({request.bucket_bytes}) say what is sent: give both"
        )
    transport = TRANSPORTS[request.transport]
    place = "directory" if transport is Transport.FILESYSTEM else "rendezvous"
    if not getattr(request, place):
        raise InvalidRequestError(f"{place} is empty: with {transport.value} it says where weights are to be had")
    return PrepareRequest(
        run=request.run,
        version=PolicyVersion(attempt=request.version.attempt, number=request.version.number),
        attempt_id=request.attempt_id,
        sync_id=_sync_id(request.sync_id),
        epoch=request.epoch,
        transport=transport,
        tensors=tuple(TensorSpec(name=t.name, dtype=t.dtype, shape=tuple(t.shape)) for t in request.tensors),
        bucket_bytes=request.bucket_bytes,
        trainer_address=request.trainer_address,
        rendezvous=request.rendezvous,
        directory=request.directory,
    )


def answer_to_proto(answer: Ready | Refused) -> pb2.PrepareTransferResponse:
    """The answer to a prepare."""
    if isinstance(answer, Refused):
        reason = f"REFUSAL_REASON_{answer.reason.name}"
        return pb2.PrepareTransferResponse(refused=pb2.TransferRefused(reason=reason, detail=answer.detail))
    ready = pb2.TransferReady(
        engines=(
            pb2.TransferEngine(name=each.name, first_rank=each.first_rank, workers=each.workers)
            for each in answer.engines
        ),
        group_size=answer.group_size,
    )
    ready.expires_in.FromTimedelta(timedelta(milliseconds=math.floor(answer.expires_s * 1000)))
    return pb2.PrepareTransferResponse(ready=ready)


def _sync_id(text: str) -> str:
    if len(text) != SYNC_ID_DIGITS or not set(text) <= set("0123456789abcdef"):
        raise InvalidRequestError(f"sync_id {text!r:.80}: give {SYNC_ID_DIGITS} hexadecimal digits, in small letters")
    return text
