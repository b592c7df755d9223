"""`BatchService`: one session per stream."""

import grpc

from dataserver.config import ServerConfig
from dataserver.hosting.call import Call
from dataserver.streaming.held_out import HeldOuts
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.registry import Registry
from dataserver.streaming.session import StreamSession
from dataserver.streaming.waits import Waits
from dataserver.v1 import batch_service_pb2 as pb

SERVICE_NAME = "dataserver.v1.BatchService"


class BatchService:
    """The data path. Its responses are bytes already: the hot message is encoded by hand."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        registry: Registry,
        held_outs: HeldOuts,
        waits: Waits,
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._registry = registry
        self._held_outs = held_outs
        self._waits = waits
        self._metrics = metrics

    def add_to_server(self, server: grpc.aio.Server) -> None:
        """Register, with the identity in place of a response serializer."""
        handler = grpc.stream_stream_rpc_method_handler(
            self.stream_micro_batches,
            request_deserializer=pb.StreamMicroBatchesRequest.FromString,
            response_serializer=None,
        )
        methods = {"StreamMicroBatches": handler}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, methods),))

    async def stream_micro_batches(self, _requests: object, call: Call) -> None:
        """Stream one rank's micro-batches."""
        session = StreamSession(
            call,
            config=self._config,
            registry=self._registry,
            held_outs=self._held_outs,
            waits=self._waits,
            metrics=self._metrics,
        )
        await session.serve()
