"""Calls with one answer, or with a stream of answers: deadlines, errors, failover.

All RPCs but `BeginAttempt` (see `begin`) may be repeated, so UNAVAILABLE is repeated here; no
other code is.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from dataserver.client.connection import Channels
from dataserver.client.failover import Failover
from dataserver.errors import DataServerError, UnavailableError, WaitExpiredError
from dataserver.wire.status import error_of

AnswerT = TypeVar("AnswerT", bound=Message)

CALL_DEADLINE_S: Final = 60.0
"""How long one answer may take. Describing a step far ahead of the sealed ones takes longest."""

ORDER_DEADLINE_S: Final = 600.0
"""How long a server may take over a new order: it reads the masks of all rows that `max_length` cuts."""

_PAGE_SIZE: Final = 1000


def _take_any(_answer: Message) -> None:
    """Whatever is answered is what was waited for."""


class Calls:
    """Calls over the channels of one client. An RPC is named `Service/Method`."""

    def __init__(self, channels: Channels, patience_s: float) -> None:
        self._channels = channels
        self._patience_s = patience_s
        self._preferred = 0

    def failover(self, waiter: str) -> Failover:
        """A fresh failover that begins at the endpoint that answered last."""
        endpoints = self._channels.settings.endpoints
        return Failover(endpoints, first=self._preferred, patience_s=self._patience_s, waiter=waiter)

    def unary(
        self,
        rpc: str,
        request: Message,
        answer: type[AnswerT],
        *,
        deadline_s: float | None = None,
        check: Callable[[AnswerT], None] = _take_any,
    ) -> AnswerT:
        """Call until a server answers or patience is spent; raises what the server raised.

        One answer may take `deadline_s`; None: as long as `CALL_DEADLINE_S`. `check` raises `UnavailableError` for an
        answer that is not yet what is waited for.
        """
        failover = self.failover(rpc)
        while True:
            try:
                return self.once(failover, rpc, request, answer, deadline_s=deadline_s, check=check)
            except UnavailableError as error:
                time.sleep(failover.failed(error))

    def unrepeated(self, rpc: str, request: Message, answer: type[AnswerT], *, look: str) -> AnswerT:
        """Call one time; a lost answer raises what it was lost by, and `look` says how to see what became of it."""
        try:
            return self.once(self.failover(rpc), rpc, request, answer)
        except (UnavailableError, WaitExpiredError) as error:
            raise type(error)(f"{rpc} was sent and its answer is lost ({error.message}); {look}") from error

    def once(
        self,
        failover: Failover,
        rpc: str,
        request: Message,
        answer: type[AnswerT],
        *,
        deadline_s: float | None = None,
        check: Callable[[AnswerT], None] = _take_any,
    ) -> AnswerT:
        """Call `failover`'s endpoint one time; `check` as for `unary`."""
        deadline_s = CALL_DEADLINE_S if deadline_s is None else deadline_s
        endpoint = failover.endpoint
        channel = self._channels.channel(endpoint)
        method = channel.unary_unary(_path(rpc), type(request).SerializeToString, answer.FromString)
        begin = time.monotonic()
        try:
            answered: AnswerT = method(request, timeout=deadline_s, metadata=self._channels.settings.metadata)
        except grpc.RpcError as failed:
            error = error_of(failed)
            waited = time.monotonic() - begin
            if isinstance(error, WaitExpiredError) and waited >= deadline_s:
                error = WaitExpiredError(f"{rpc}: {endpoint} gave no answer within {waited:.0f} s")
            raise error from failed
        check(answered)
        failover.succeeded()
        self._preferred = self._channels.settings.endpoints.index(endpoint)
        return answered

    def pages(self, rpc: str, request: Message, answer: type[AnswerT]) -> Iterator[AnswerT]:
        """Yield all pages of a list."""
        page: Any = type(request)()  # every list's request and answer have these fields; their base class has not
        page.CopyFrom(request)
        page.page_size = _PAGE_SIZE
        while True:
            answered: Any = self.unary(rpc, page, answer)
            yield answered
            if not answered.next_page_token:
                return
            page.page_token = answered.next_page_token

    def watch(self, rpc: str, request: Message, answer: type[AnswerT]) -> Iterator[AnswerT]:
        """Yield what the server sends, reconnecting as often as it takes, until it ends the stream."""
        failover = self.failover(rpc)
        while True:
            channel = self._channels.channel(failover.endpoint)
            method = channel.unary_stream(_path(rpc), type(request).SerializeToString, answer.FromString)
            # What comes back is an iterator and a call; the stubs only know the one or the other.
            answers: Any = method(request, metadata=self._channels.settings.metadata)
            try:
                for answered in answers:
                    failover.succeeded()
                    yield answered
            except grpc.RpcError as failed:
                pause = self._pause_after(error_of(failed), failover)
            else:
                return
            finally:
                answers.cancel()
            time.sleep(pause)

    @staticmethod
    def _pause_after(error: DataServerError, failover: Failover) -> float:
        if not isinstance(error, UnavailableError):
            raise error
        return failover.failed(error)


def _path(rpc: str) -> str:
    return f"/dataserver.v1.{rpc}"
