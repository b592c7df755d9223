"""Around every call: errors become statuses, and no request ends the server.

DataServerError      -> its status, with google.rpc.ErrorInfo
no file can be opened -> UNAVAILABLE, whatever failed by it
anything else        -> INTERNAL with an incident number; the log has the trace under that number
bytes that are no message of the method -> INVALID_ARGUMENT
"""

import asyncio
import inspect
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from prometheus_client import Counter

from dataserver.errors import DataServerError, InternalError, InvalidRequestError
from dataserver.hosting.call import Call
from dataserver.hosting.open_files import out_of_files
from dataserver.wire.status import status_of

log = logging.getLogger(__name__)

# A refusal that is repeated, as of a client that waits, is logged again so much later; and how many are remembered.
REMIND_S = 600.0
REMEMBERED = 256

# Requests and responses of whatever method.
Message: TypeAlias = Any
Handler: TypeAlias = "Callable[[Message, Call], Awaitable[Message]]"


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps the handlers of our own services. They are coroutine functions, streaming ones too.

    `requests` counts calls by method and status. Services of `package` are our own: health, reflection and channelz
    bring their own statuses.
    """

    def __init__(self, requests: Counter, package: str) -> None:
        self._requests = requests
        self._prefix = f"/{package}."
        self._told: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_idle(self, limit_s: float) -> bool:
        """Wait until no call is under way, for `limit_s` seconds at most; say whether none is."""
        try:
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Message, Message]"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Message, Message]":
        """Return the method's handler, guarded."""
        handler: Any = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(self._prefix):
            return handler  # type: ignore[no-any-return]
        kind = next(
            kind
            for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
            if getattr(handler, kind) is not None
        )
        make: Callable[..., grpc.RpcMethodHandler[Message, Message]] = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            self._guarded(getattr(handler, kind), method.removeprefix(self._prefix)),
            request_deserializer=(_raising if handler.request_streaming else _tolerant)(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )

    def _guarded(self, handler: Handler, method: str) -> Handler:
        if not inspect.iscoroutinefunction(handler):
            raise TypeError(f"{method} is no coroutine function")

        async def guarded(request: Message, call: Call) -> Message:
            self._begun()
            try:
                answer = await handler(_decoded(request), call)
            except asyncio.CancelledError:
                self._count(method, "CANCELLED")
                raise
            except DataServerError as error:
                await self._abort(call, method, out_of_files(error) or error)
            except Exception as error:
                if _is_gone(error):
                    self._count(method, "CANCELLED")
                    raise _gone() from error
                if call.done():
                    self._count(method, "CANCELLED")
                    raise
                await self._abort(call, method, out_of_files(error) or _incident(method, error))
            else:
                self._count(method, "OK")
                return answer
            finally:
                self._ended()

        return guarded

    def _begun(self) -> None:
        self._under_way += 1
        self._idle.clear()

    def _ended(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    async def _abort(self, call: Call, method: str, error: DataServerError) -> None:
        code, message, metadata = status_of(error)
        self._count(method, code.name)
        level = logging.INFO if self._is_news(method, message) else logging.DEBUG
        log.log(
            logging.ERROR if isinstance(error, InternalError) else level,
            "%s refused: %s: %s",
            method,
            code.name,
            message,
        )
        try:
            await call.abort(code, message, metadata)
        except Exception as failure:
            if _is_gone(failure):
                raise _gone() from failure
            raise

    def _is_news(self, method: str, message: str) -> bool:
        """Whether a refusal was not logged a while ago in the same words."""
        now = time.monotonic()
        if now - self._told.get((method, message), -REMIND_S) < REMIND_S:
            return False
        self._told[method, message] = now
        self._told.move_to_end((method, message))
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return True

    def _count(self, method: str, status: str) -> None:
        self._requests.labels(method, status).inc()


def _incident(method: str, error: Exception) -> InternalError:
    """Log `error` with its trace; return what the client is told."""
    incident = secrets.token_hex(4)
    log.error("%s failed; incident %s", method, incident, exc_info=error)
    return InternalError(
        f"the server met a fault of its own in {method}: {type(error).__name__}; "
        f"its log has the trace under incident {incident}",
        incident=incident,
    )


def _raising(deserialize: Callable[[bytes], Message]) -> Callable[[bytes], Message]:
    """`deserialize` with our error, for handlers that read themselves."""

    def raising(data: bytes) -> Message:
        try:
            return deserialize(data)
        except DecodeError as error:
            raise InvalidRequestError(f"{len(data)} bytes of request are no such message: {error}") from error

    return raising


def _tolerant(deserialize: Callable[[bytes], Message]) -> Callable[[bytes], Message]:
    """`deserialize`, but an error is its value: gRPC calls it where the guard does not see it raise."""
    raising = _raising(deserialize)

    def tolerant(data: bytes) -> Message:
        try:
            return raising(data)
        except InvalidRequestError as error:
            return error

    return tolerant


def _decoded(request: Message) -> Message:
    if isinstance(request, InvalidRequestError):
        raise request
    return request


def _is_gone(error: Exception) -> bool:
    """Whether the client went away in the middle of a read or write, or while it was told a status."""
    return type(error).__name__ == "ExecuteBatchError"


def _gone() -> asyncio.CancelledError:
    """What a call ends with whose client is gone: gRPC logs its own error with a trace, as a fault of the server's."""
    return asyncio.CancelledError("the client is gone")
