"""A server that speaks the protocol by script: it can do what a healthy one never does."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from queue import SimpleQueue
from typing import Any

import grpc
import numpy as np
import pytest
import xxhash
from google.protobuf.message import Message

from dataserver.client import DataClient
from dataserver.cursor import Cursor
from dataserver.errors import DataServerError
from dataserver.v1 import batch_service_pb2 as pb
from dataserver.wire.messages import cursor_to_proto
from dataserver.wire.responses import encode_response
from dataserver.wire.status import status_of

FINGERPRINT = "f" * 32


def cursor(step: int) -> Cursor:
    return Cursor(order_fingerprint=FINGERPRINT, step=step, position=10 * step)


class Connection:
    """One connection as the script sees it, and the messages that it may send."""

    def __init__(self, requests: Iterator[pb.StreamMicroBatchesRequest]) -> None:
        self.open = next(requests).open
        self.acks: SimpleQueue[int] = SimpleQueue()
        self.half_closed = threading.Event()
        self.credits = threading.Semaphore(self.open.credits)
        self.granted = self.open.credits
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()

    def _read(self, requests: Iterator[pb.StreamMicroBatchesRequest]) -> None:
        try:
            for request in requests:
                if request.HasField("ack"):
                    self.acks.put(request.ack.step)
                else:
                    self.granted += request.credit.micro_batches
                    for _ in range(request.credit.micro_batches):
                        self.credits.release()
        except grpc.RpcError:  # the client is gone
            pass
        self.half_closed.set()

    @staticmethod
    def opened() -> bytes:
        message = pb.Opened(base=cursor_to_proto(cursor(0)), server_id="scripted")
        return encode_response(pb.StreamMicroBatchesResponse(opened=message))

    @staticmethod
    def step_begun(step: int, rounds: int, *, last: bool = False, digest: str = "d") -> bytes:
        message = pb.StepBegun(
            step=step,
            rounds=rounds,
            end=cursor_to_proto(cursor(step)),
            plan_digest=f"{digest}{step}",
            last=last,
            target_count=3 * rounds,
            token_count=5 * rounds,
            sample_count=rounds,
            weight_sum=3 * rounds,
        )
        return encode_response(pb.StreamMicroBatchesResponse(step_begun=message))

    @staticmethod
    def micro_batch(step: int, round_index: int) -> bytes:
        body = pb.MicroBatch(
            step=step,
            round=round_index,
            token_bytes=2,
            alignment=1,
            target_count=3,
            lengths=[5],
            loss_mask=bytes([0b11010]),
            tokens=(np.arange(5, dtype="<u2") + 100 * step + round_index).tobytes(),
        )
        body.checksum = xxhash.xxh3_64_intdigest(body.SerializeToString(deterministic=True))
        return pb.StreamMicroBatchesResponse(micro_batches=[body]).SerializeToString()

    @staticmethod
    def end_of_run(step: int) -> bytes:
        message = pb.EndOfRun(end=cursor_to_proto(cursor(step)), reason="max_steps")
        return encode_response(pb.StreamMicroBatchesResponse(end_of_run=message))

    def whole_step(self, step: int, rounds: int, *, last: bool = False) -> Iterator[bytes]:
        yield self.step_begun(step, rounds, last=last)
        for index in range(rounds):
            yield self.micro_batch(step, index)


Script = Callable[[Connection], Iterator[bytes]]


class ScriptedServer:
    """Plays one script per connection, in order; without another script, it answers UNAVAILABLE."""

    def __init__(self, *scripts: Script, port: int = 0) -> None:
        self.connections: list[Connection] = []
        self._scripts = list(scripts)
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        handler = grpc.stream_stream_rpc_method_handler(
            self._play, pb.StreamMicroBatchesRequest.FromString, lambda data: data
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("dataserver.v1.BatchService", {"StreamMicroBatches": handler}),)
        )
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port(f'127.0.0.1:{port}')}"
        self._server.start()

    def _play(self, requests: Iterator[pb.StreamMicroBatchesRequest], context: grpc.ServicerContext) -> Iterator[bytes]:
        if not self._scripts:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the script is over")
        script = self._scripts.pop(0)
        connection = Connection(requests)
        self.connections.append(connection)
        context.add_callback(connection.half_closed.set)
        try:
            yield from script(connection)
        except DataServerError as error:
            code, message, metadata = status_of(error)
            context.set_trailing_metadata(metadata)
            context.abort(code, message)

    def stop(self) -> None:
        self._server.stop(None).wait()


Methods = Mapping[str, tuple[type[Message], Callable[[Any], Message]]]


class Unary:
    """A server of unary calls: RPC -> (request class, function from request to answer)."""

    def __init__(self, methods: Methods, handler: grpc.GenericRpcHandler | None) -> None:
        self.called: list[str] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        for rpc, (request, function) in methods.items():
            service, method = rpc.split("/")
            function_handler = grpc.unary_unary_rpc_method_handler(
                self._answer(rpc, function), request.FromString, lambda answer: answer.SerializeToString()
            )
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(f"dataserver.v1.{service}", {method: function_handler}),)
            )
        if handler is not None:
            self._server.add_generic_rpc_handlers((handler,))
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _answer(self, rpc: str, function: Callable[[Any], Message]) -> Callable[..., Message]:
        def answer(request: Message, context: grpc.ServicerContext) -> Message:
            self.called.append(rpc)
            try:
                return function(request)
            except DataServerError as error:
                code, message, metadata = status_of(error)
                context.set_trailing_metadata(metadata)
                context.abort(code, message)
                raise

        return answer

    def stop(self) -> None:
        self._server.stop(None).wait()


@pytest.fixture
def unary():
    """Start a server of unary calls; it ends with the test."""
    servers: list[Unary] = []

    def start(methods: Methods, handler: grpc.GenericRpcHandler | None = None) -> Unary:
        servers.append(Unary(methods, handler))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def scripted():
    """Start a scripted server and a client of it; both end with the test."""
    servers: list[ScriptedServer] = []
    clients: list[DataClient] = []

    def start(*scripts: Script, patience_s: float = 60.0) -> tuple[ScriptedServer, DataClient]:
        server = ScriptedServer(*scripts)
        servers.append(server)
        client = DataClient(server.endpoint, patience_s=patience_s)
        clients.append(client)
        return server, client

    yield start
    for client in clients:
        client.close()
    for server in servers:
        server.stop()
