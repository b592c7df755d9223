"""The training loop's end of a rank's stream: steps come out, acks go in."""

import logging
import time
import weakref
from queue import Empty
from types import TracebackType
from typing import Final, Self

from dataserver.client.failover import LOG_EVERY_S, clock
from dataserver.client.receiver import Arrival, Failure, Receiver
from dataserver.client.step import Step
from dataserver.client.uplink import Uplink
from dataserver.errors import (
    DataServerError,
    InternalError,
    InvalidRequestError,
    PreconditionError,
    UnavailableError,
    WaitExpiredError,
)
from dataserver.wire.micro_batch import MicroBatch
from dataserver.wire.responses import RunEnded, StepBegun

# After the last step nothing is needed any more. The word that the run ended is waited for all
# the same, so that a server, restarted perhaps, hears the last ack and seals the end.
_END_WAIT_S: Final = 5.0

# How often one who waits looks about.
_POLL_S: Final = 0.2

_logger = logging.getLogger("dataserver.client")


class StepStream:
    """Iterates over the steps of one rank. For one thread at a time.

        with client.stream("run", attempt, world_rank=0, dp_rank=0, next_step=1) as stream:
            for step in stream:
                for micro_batch in step:
                    ...
                stream.ack(step)

    A server that restarts is a pause. `UnavailableError` is raised when none answers for
    `patience_s`, `WaitExpiredError` when one is there but silent for as long; whatever else the
    server raises is raised here, as the same class. Dropping a stream closes it.
    """

    def __init__(self, *, receiver: Receiver, uplink: Uplink, patience_s: float, waiter: str, next_step: int) -> None:
        self._receiver = receiver
        self._uplink = uplink
        self._patience_s = patience_s
        self._waiter = waiter
        self._next_step = next_step
        self._begun: StepBegun | None = None
        self._taken = 0
        self._over = False
        self._failure: DataServerError | None = None
        # A step refers to its stream and not the other way round, so that the last reference to
        # a stream is the training loop's. The finalizer also runs when the interpreter exits.
        self._finalizer = weakref.finalize(self, receiver.stop)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Step:
        self._check_taken("the next step was asked for")
        if self._over:
            raise StopIteration
        if self._begun is not None and self._begun.last:
            self._over = True
            self._await_end()
            raise StopIteration
        arrival, waited = self._take(f"step {self._next_step}")
        if isinstance(arrival, RunEnded):
            self._over = True
            raise StopIteration
        if not isinstance(arrival, StepBegun):
            raise InternalError(f"{self._waiter}: a micro-batch arrived where a step was due")
        self._begun, self._taken, self._next_step = arrival, 0, arrival.step + 1
        return Step(arrival, waited, self._take_micro_batch)

    def ack(self, step: Step) -> None:
        """Say that the optimizer step is done on this rank, and all before it. Never blocks.

        Raises `PreconditionError` when micro-batches of the step were not taken: a sample that
        no optimizer step used must not count as consumed.
        """
        if self._begun is None or step.number > self._begun.step:
            raise InvalidRequestError(f"{self._waiter}: ack of step {step.number}, which this stream has not begun")
        if step.number == self._begun.step:
            self._check_taken("the step was acknowledged")
        self._uplink.ack(step.number)

    def close(self) -> None:
        """End the stream and its thread, in bounded time. Idempotent."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_taken(self, event: str) -> None:
        if self._begun is not None and self._taken < self._begun.rounds:
            raise PreconditionError(
                f"{self._waiter}: {event} after {self._taken} of {self._begun.rounds} micro-batches of step "
                f"{self._begun.step}: iterate over all of them, or close the stream"
            )

    def _take_micro_batch(self) -> tuple[MicroBatch, float]:
        arrival, waited = self._take(f"round {self._taken} of step {self._next_step - 1}")
        if not isinstance(arrival, MicroBatch):
            raise InternalError(f"{self._waiter}: a step was cut short")
        self._taken += 1
        self._uplink.taken()
        return arrival, waited

    def _take(self, wanted: str) -> tuple[StepBegun | MicroBatch | RunEnded, float]:
        """The next arrival and the seconds waited for it. What failed once keeps failing."""
        if not self._finalizer.alive:
            raise PreconditionError(f"{self._waiter}: the stream is closed")
        if self._failure is not None:
            raise self._failure
        wait = _Wait(f"{self._waiter} waits since {clock()} for {wanted}")
        while True:
            try:
                arrival = self._unwrapped(self._receiver.inbox.get(timeout=_POLL_S))
            except Empty:
                self._check_silence(wait)
            else:
                return arrival, wait.waited_s

    def _unwrapped(self, arrival: Arrival) -> StepBegun | MicroBatch | RunEnded:
        if isinstance(arrival, Failure):
            self._failure = arrival.error
            raise arrival.error
        return arrival

    def _check_silence(self, wait: "_Wait") -> None:
        """Log a long wait; raise when a server is there but silent for `patience_s`.

        A server that is away is the receiver's to judge.
        """
        endpoint, heard = self._receiver.endpoint, self._receiver.heard
        if heard is not None:
            silent_s = time.monotonic() - max(wait.begin, heard)
            if silent_s >= self._patience_s:
                self._failure = WaitExpiredError(
                    f"{wait.what} from {endpoint}, which is there but sent nothing for {silent_s:.1f} s"
                )
                raise self._failure
        wait.log(endpoint)

    def _await_end(self) -> None:
        """After the last step: wait a little for the word that the run ended. A server that is gone is no fault."""
        try:
            self._unwrapped(self._receiver.inbox.get(timeout=_END_WAIT_S))
        except (Empty, UnavailableError):
            _logger.info("%s: the last step is done, but no server said that the run ended", self._waiter)


class _Wait:
    """A wait of the training loop: what for, and since when."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.begin = time.monotonic()
        self._next_log_s = LOG_EVERY_S

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self.begin

    def log(self, endpoint: str) -> None:
        if self.waited_s >= self._next_log_s:
            self._next_log_s += LOG_EVERY_S
            _logger.warning("%s from %s (%.0f s)", self.what, endpoint, self.waited_s)
