"""Calls with whatever bytes one likes, and the statuses that come back."""

from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import NamedTuple

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from dataserver.v1 import batch_service_pb2

STREAM = "/dataserver.v1.BatchService/StreamMicroBatches"

# No answer within this long is a hang.
DEADLINE_S = 60.0


class Status(NamedTuple):
    """How a call ended: gRPC's code, our reason (empty when there is none), and the words."""

    code: str
    reason: str
    words: str

    @property
    def verdict(self) -> tuple[str, str]:
        return self.code, self.reason


OK = Status("OK", "", "")


class Wire:
    """A connection of its own to a server, that passes bytes unread."""

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.insecure_channel(
            endpoint,
            options=[("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)],
        )

    def close(self) -> None:
        self._channel.close()

    def unary(self, path: str, request: bytes) -> tuple[Status, bytes]:
        """One request, one answer."""
        try:
            answer = self._channel.unary_unary(path)(request, timeout=DEADLINE_S)
        except grpc.RpcError as error:
            return status_of(error), b""
        return OK, answer

    def server_stream(self, path: str, request: bytes) -> Status:
        """One request; the first answer is enough."""
        call = self._channel.unary_stream(path)(request, timeout=DEADLINE_S)
        try:
            next(call, None)
        except grpc.RpcError as error:
            return status_of(error)
        finally:
            call.cancel()
        return OK

    def abandon(self, path: str, request: bytes) -> None:
        """Call, and hang up at once."""
        self._channel.unary_stream(path)(request, timeout=DEADLINE_S).cancel()

    def with_header(self, name: str, value: str, path: str) -> Status:
        """Call with one more header and an empty request."""
        try:
            self._channel.unary_unary(path)(b"", timeout=DEADLINE_S, metadata=((name, value),))
        except grpc.RpcError as error:
            return status_of(error)
        return OK

    def conversation(self, requests: Sequence[bytes], *, half_close: bool = True) -> tuple[Status, list[bytes]]:
        """Say all `requests` on one stream; how it ended and what came back.

        Without `half_close` the client stays, so that only the server can end the stream.
        """
        talk = Talk(self, requests)
        if half_close:
            talk.half_close()
        return talk.rest()


class Talk:
    """A bidirectional stream under way."""

    def __init__(self, wire: Wire, requests: Sequence[bytes] = ()) -> None:
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        for request in requests:
            self._outbox.put(request)
        self.call = wire._channel.stream_stream(STREAM)(self._requests(), timeout=DEADLINE_S)

    def say(self, request: bytes) -> None:
        self._outbox.put(request)

    def half_close(self) -> None:
        self._outbox.put(None)

    def hear(self) -> batch_service_pb2.StreamMicroBatchesResponse:
        """The next answer; `grpc.RpcError` when the server ended with an error."""
        return batch_service_pb2.StreamMicroBatchesResponse.FromString(next(self.call))

    def rest(self) -> tuple[Status, list[bytes]]:
        """How the stream ended, and what came until then."""
        answers: list[bytes] = []
        try:
            for answer in self.call:
                answers.append(answer)
        except grpc.RpcError as error:
            return status_of(error), answers
        finally:
            self.cancel()
        return OK, answers

    def cancel(self) -> None:
        self.call.cancel()
        self.half_close()

    def _requests(self) -> Iterator[bytes]:
        while (request := self._outbox.get()) is not None:
            yield request


def status_of(error: grpc.RpcError) -> Status:
    """What `error` says, read as any client would read it."""
    reason = ""
    details = rpc_status.from_call(error)
    for detail in details.details if details else ():
        info = ErrorInfo()
        if detail.Unpack(info):
            reason = info.reason
    return Status(error.code().name, reason, error.details() or "")
