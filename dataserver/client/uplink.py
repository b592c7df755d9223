"""What a rank tells the server: opens, acks, credits.

The server may send as many micro-batches as it has credits for. Credits are given back as
micro-batches are *taken* by the training loop, half a window at a time, since a message per
micro-batch would cost as much as a small micro-batch does:

    outstanding (the server may send) + buffered (arrived, not taken) <= credits
"""

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Final

from dataserver.cursor import Cursor
from dataserver.errors import InvalidRequestError
from dataserver.v1 import batch_service_pb2
from dataserver.wire.build import built
from dataserver.wire.messages import cursor_to_proto

MAX_CREDITS: Final = 1024

_Request = batch_service_pb2.StreamMicroBatchesRequest


class Uplink:
    """The upward half of a rank's stream, over all its connections. Used by two threads.

    `opened`: the open of every connection, but for its credits and where it begins.
    """

    def __init__(self, *, opened: batch_service_pb2.Open, credits: int) -> None:  # noqa: A002
        if not 1 <= credits <= MAX_CREDITS:
            raise InvalidRequestError(f"credits = {credits}: use 1 to {MAX_CREDITS}")
        self._open = opened
        self._credits = credits
        self._lock = threading.Lock()
        self._requests: SimpleQueue[_Request | None] | None = None
        self._outstanding = 0
        self._buffered = 0
        self._acked: int | None = None
        self._acked_offer = self._seen_offer = 0

    def connect(self, next_step: int, begin: Cursor | None) -> Iterator[_Request]:
        """The requests of a new connection: an open, the last ack again, then what comes.

        An attempt's ledger knows where `next_step` begins. A held-out store has none, and is told: at `begin`.
        A connection needs at least one credit. With a full buffer that is one more than fits,
        and is made up for by later grants.
        """
        requests: SimpleQueue[_Request | None] = SimpleQueue()
        with self._lock:
            self._outstanding = max(1, self._credits - self._buffered)
            opened = batch_service_pb2.Open(credits=self._outstanding)
            opened.MergeFrom(self._open)
            self._seen_offer = self._acked_offer
            if opened.purpose == batch_service_pb2.PURPOSE_TRAIN:
                opened.MergeFrom(built(batch_service_pb2.Open, next_step=next_step, acked_offer=self._acked_offer))
            elif begin is not None:
                opened.begin.CopyFrom(cursor_to_proto(begin))
            requests.put(_Request(open=opened))
            if self._acked is not None:
                requests.put(self._ack())
            self._requests = requests
        return iter(requests.get, None)

    def disconnect(self) -> None:
        """Forget the connection; gRPC's thread that sends its requests ends."""
        self.half_close()
        with self._lock:
            self._requests = None
            self._outstanding = 0

    def half_close(self) -> None:
        """Say that nothing follows. Takes no lock: a signal handler or the garbage collector may call it."""
        requests = self._requests
        if requests is not None:
            requests.put(None)

    def arrived(self) -> None:
        """A micro-batch arrived and waits to be taken."""
        with self._lock:
            self._outstanding -= 1
            self._buffered += 1

    def passed_over(self) -> None:
        """A micro-batch arrived that had arrived before."""
        with self._lock:
            self._outstanding -= 1
            self._grant()

    def taken(self) -> None:
        """The training loop took a micro-batch."""
        with self._lock:
            self._buffered -= 1
            self._grant()

    def ack(self, step: int) -> None:
        """Say that a step is consumed, now and after every reconnect."""
        with self._lock:
            self._acked = step if self._acked is None else max(step, self._acked)
            if self._requests is not None:
                self._requests.put(self._ack())

    def owes(self, step: int) -> bool:
        """Whether a step, which the training loop has had, is still to be acknowledged."""
        return self._open.purpose == batch_service_pb2.PURPOSE_TRAIN and step > (self._acked or 0)

    def offered(self, number: int) -> None:
        """An offer arrived, for the first time or again."""
        with self._lock:
            self._seen_offer = max(number, self._seen_offer)
            if self._requests is not None and number and self._acked_offer >= number:
                self._requests.put(self._ack())

    def ack_offer(self, number: int) -> None:
        """Say that the rank is done with an offer, now and after every reconnect."""
        with self._lock:
            self._acked_offer = max(number, self._acked_offer)
            if self._requests is not None and self._seen_offer >= number:
                self._requests.put(self._ack())

    def _ack(self) -> _Request:
        """A server refuses acks of what it did not send: an offer is acknowledged once this connection brought it."""
        offer = min(self._acked_offer, self._seen_offer)
        return _Request(ack=batch_service_pb2.Ack(step=self._acked or 0, offer=offer))

    def _grant(self) -> None:
        room = self._credits - self._outstanding - self._buffered
        if self._requests is not None and room >= max(1, self._credits // 2):
            self._outstanding += room
            self._requests.put(_Request(credit=batch_service_pb2.Credit(micro_batches=room)))
