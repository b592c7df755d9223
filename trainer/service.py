"""trainer.v1.TrainerService, on rank 0 while a job that hands weights over runs.

The orchestrator calls it: to see where the trainer is, and to end a transfer that the trainer
waits in, when an engine died.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

from dataserver.errors import InvalidConfigError
from dataserver.hosting.credentials import ThreadedTokenCheck, read_token, server_credentials
from dataserver.listening import join_address, split_address
from dataserver.v1.policy_version_pb2 import PolicyVersion as PolicyVersionMessage
from dataserver.weight_sync import PolicyVersion
from trainer.v1 import trainer_service_pb2 as messages
from trainer.v1.trainer_service_pb2_grpc import TrainerServiceServicer, add_TrainerServiceServicer_to_server
from trainer.weights.underway import Underway
from trainer.weights_config import WeightsConfig


class TrainerServer:
    """Answers as soon as it is made. `version`: that of the weights, now. Raises `InvalidConfigError`."""

    def __init__(
        self,
        config: WeightsConfig,
        *,
        run: str,
        world_size: int,
        version: Callable[[], PolicyVersion],
        underway: Underway,
    ) -> None:
        token = None if config.token_file is None else read_token(config.token_file)
        credentials = None if config.tls is None else server_credentials(config.tls)
        # Answers take no time; a second thread is for one that is called while another is written.
        self._server = grpc.server(
            ThreadPoolExecutor(2, "trainer service"),
            interceptors=[] if token is None else [ThreadedTokenCheck(token)],
            options=(("grpc.so_reuseport", 0),),
        )
        add_TrainerServiceServicer_to_server(  # type: ignore[no-untyped-call]
            _Servicer(run=run, world_size=world_size, version=version, underway=underway), self._server
        )
        address = join_address(*split_address(config.listen))
        try:
            if credentials is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise InvalidConfigError(f"weights.listen = {config.listen!r}: {error}") from error
        self.address = join_address(config.called_host, bound)
        self._server.start()

    def close(self) -> None:
        """Stop answering. Idempotent."""
        self._server.stop(None).wait()


class _Servicer(TrainerServiceServicer):
    def __init__(self, *, run: str, world_size: int, version: Callable[[], PolicyVersion], underway: Underway) -> None:
        self._run = run
        self._world_size = world_size
        self._version = version
        self._underway = underway

    def GetStatus(self, request: messages.GetStatusRequest, context: object) -> messages.GetStatusResponse:
        version = self._version()
        return messages.GetStatusResponse(
            run=self._run,
            version=PolicyVersionMessage(attempt=version.attempt, number=version.number),
            world_size=self._world_size,
            sync_id=self._underway.sync_id,
        )

    def AbortTransfer(self, request: messages.AbortTransferRequest, context: object) -> messages.AbortTransferResponse:
        return messages.AbortTransferResponse(aborted=self._underway.abort(request.sync_id, request.reason))
