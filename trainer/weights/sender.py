"""A thread that sends while the next bucket is gathered.

    gather ──put──> [one bucket waits] ──> digest, send          a fault: buckets are dropped from then on

The training thread never waits beyond the deadline. A thread that is stuck in a send is left
behind, and ends when what it waits in gives up; nothing that it still sends will be committed.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from trainer.weights.checksum import digests_of
from trainer.weights.gather import Bucket
from trainer.weights.sync import TransferError
from trainer.weights.transport import Transport

# Besides the bucket that is being sent and the one that is being gathered.
WAITING_BUCKETS: Final = 1

log = logging.getLogger(__name__)


class Sender:
    """Sends one rank's buckets of one sync. `deadline_s`: seconds from now in which all must be sent."""

    def __init__(self, transport: Transport, *, group_size: int, deadline_s: float) -> None:
        self._transport = transport
        self._group_size = group_size
        self._deadline_s = deadline_s
        self._deadline = time.monotonic() + deadline_s
        self._changed = threading.Condition()
        self._waiting: deque[Bucket] = deque()
        self._closed = False
        self._done = False
        self._fault: str | None = None
        self._digests: dict[int, bytes] = {}
        self._thread = threading.Thread(target=self._run, name="weight sender", daemon=True)
        self._thread.start()

    def put(self, bucket: Bucket) -> None:
        """Take a bucket to send; waits while another one waits. After a fault it is dropped."""
        with self._changed:
            self._wait(lambda: len(self._waiting) < WAITING_BUCKETS)
            if self._fault is None:
                self._waiting.append(bucket)
                self._changed.notify_all()

    def drain(self) -> dict[int, bytes]:
        """Wait until all is sent; returns the digests by the weight's place. Raises `TransferError`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._wait(lambda: self._done)
            if self._fault is not None:
                raise TransferError(self._fault)
            return self._digests

    def cancel(self, why: str) -> None:
        """Give up at once; from any thread."""
        with self._changed:
            self._fail(why)

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's own end, which may come later than a fault."""
        self._thread.join(timeout_s)

    def _wait(self, until: Callable[[], bool]) -> None:
        if not self._changed.wait_for(lambda: self._fault is not None or until(), self._deadline - time.monotonic()):
            self._fail(f"not everything was sent within {self._deadline_s:g} s")

    def _fail(self, why: str) -> None:
        if self._fault is None and not self._done:
            self._fault = why
            self._waiting.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            self._transport.join(self._group_size, self._deadline_s)
            while (bucket := self._next()) is not None:
                digests = digests_of(bucket.data, [spec.size for spec in bucket.specs])
                self._digests.update(enumerate(digests, start=bucket.first))
                self._transport.send(bucket)
        except Exception as error:
            log.debug("sending failed", exc_info=True)
            with self._changed:
                self._fail(f"{type(error).__name__}: {error}")
        with self._changed:
            self._done = True
            self._changed.notify_all()

    def _next(self) -> Bucket | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed or self._fault is not None)
            if not self._waiting:
                return None
            bucket = self._waiting.popleft()
            self._changed.notify_all()
            return bucket
