"""How a trainer that waits in a transfer is told to leave it."""

import logging

import grpc

from orchestrator.transfers.values import PrepareRequest
from trainer.v1 import trainer_service_pb2 as trainers

log = logging.getLogger(__name__)

DEADLINE_S = 5.0
TRIES = 3


async def abort_at_trainer(request: PrepareRequest, reason: str) -> None:
    """Call rank 0's `AbortTransfer`. A trainer that is away has left already, which is no error."""
    async with grpc.aio.insecure_channel(request.trainer_address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        method = channel.unary_unary(
            "/trainer.v1.TrainerService/AbortTransfer",
            request_serializer=trainers.AbortTransferRequest.SerializeToString,
            response_deserializer=trainers.AbortTransferResponse.FromString,
        )
        for _ in range(TRIES):
            try:
                await method(trainers.AbortTransferRequest(sync_id=request.sync_id, reason=reason), timeout=DEADLINE_S)
            except grpc.aio.AioRpcError as error:
                log.info("trainer %s: %s: %s", request.trainer_address, error.code().name, error.details())
            else:
                return
