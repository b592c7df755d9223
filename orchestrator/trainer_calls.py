"""How a trainer that waits in a transfer is told to leave it."""

import logging

import grpc

from dataserver.client.connection import ConnectionSettings, read_authorities
from dataserver.errors import InvalidConfigError
from dataserver.hosting.credentials import read_token
from dataserver.listening import CalleeConfig
from orchestrator.transfers.values import PrepareRequest
from trainer.v1 import trainer_service_pb2 as trainers

log = logging.getLogger(__name__)

DEADLINE_S = 5.0
TRIES = 3
OPTIONS = (("grpc.enable_http_proxy", 0),)


class TrainerCalls:
    """Calls to rank 0 of whichever trainer prepared a transfer. Raises `InvalidConfigError` for a missing file."""

    def __init__(self, config: CalleeConfig) -> None:
        self._token = None if config.token_file is None else read_token(config.token_file)
        self._ca_file = config.ca_file
        self._certificates = None if config.ca_file is None else read_authorities(config.ca_file)

    async def abort(self, request: PrepareRequest, reason: str) -> None:
        """Call its `AbortTransfer`. A trainer that is away has left already, which is no error."""
        address = request.trainer_address
        try:
            settings = ConnectionSettings(endpoints=(address,), token=self._token, ca=self._ca_file)
        except InvalidConfigError as error:
            log.warning("trainer %s is not called: %s", address, error)
            return
        message = trainers.AbortTransferRequest(sync_id=request.sync_id, reason=reason)
        async with self._channel(address) as channel:
            method = channel.unary_unary(
                "/trainer.v1.TrainerService/AbortTransfer",
                request_serializer=trainers.AbortTransferRequest.SerializeToString,
                response_deserializer=trainers.AbortTransferResponse.FromString,
            )
            for _ in range(TRIES):
                try:
                    await method(message, timeout=DEADLINE_S, metadata=settings.metadata)
                except grpc.aio.AioRpcError as error:
                    log.info("trainer %s: %s: %s", address, error.code().name, error.details())
                else:
                    return

    def _channel(self, address: str) -> grpc.aio.Channel:
        if self._certificates is None:
            return grpc.aio.insecure_channel(address, options=OPTIONS)
        credentials = grpc.ssl_channel_credentials(self._certificates)
        return grpc.aio.secure_channel(address, credentials, options=OPTIONS)
