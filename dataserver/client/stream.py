"""The training loop's end of a rank's stream: steps come out, acks go in."""

import logging
import time
import weakref
from collections import deque
from collections.abc import Iterator
from queue import Empty
from types import TracebackType
from typing import Final, Self

from dataserver.client.failover import clock
from dataserver.client.receiver import Arrival, Failure, Receiver
from dataserver.client.step import Step
from dataserver.client.uplink import Uplink
from dataserver.client.wait import Wait
from dataserver.errors import (
    DataServerError,
    InternalError,
    InvalidRequestError,
    PreconditionError,
    UnavailableError,
    WaitExpiredError,
)
from dataserver.weight_sync import Offer
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

    With `takes_offers`, `opening_offer` comes before the first step and `offers` after the last.
    A server that restarts is a pause. `UnavailableError` is raised when none answers for
    `patience_s`, `WaitExpiredError` when one is there but silent for as long; whatever else the
    server raises is raised here, as the same class. Dropping a stream closes it.
    """

    def __init__(
        self,
        *,
        receiver: Receiver,
        uplink: Uplink,
        patience_s: float,
        waiter: str,
        next_step: int,
        takes_offers: bool = False,
    ) -> None:
        self._receiver = receiver
        self._uplink = uplink
        self._patience_s = patience_s
        self._waiter = waiter
        self._next_step = next_step
        self._takes_offers = takes_offers
        self._offered: Offer | None = None
        self._following: Offer | None = None
        self._ended = False
        self._begun: StepBegun | None = None
        self._taken = 0
        self._over = False
        self._arrived: deque[Arrival] = deque()
        self._failure: DataServerError | None = None
        # A step refers to its stream and not the other way round, so that the last reference to
        # a stream is the training loop's. The finalizer also runs when the interpreter exits.
        self._finalizer = weakref.finalize(self, receiver.stop)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Step:
        if self._takes_offers and self._offered is None:
            raise PreconditionError(f"{self._waiter}: this stream takes offers: call opening_offer() before the steps")
        self._check_taken("the next step was asked for")
        if self._over:
            raise StopIteration
        if self._begun is not None and self._begun.last:
            self._over = True
            if not self._takes_offers:
                self._await_end()
            raise StopIteration
        arrival, waited = self._take(f"step {self._next_step}")
        if isinstance(arrival, Offer | RunEnded):
            self._over = True
            self._follow(arrival)
            raise StopIteration
        if not isinstance(arrival, StepBegun):
            raise InternalError(f"{self._waiter}: a micro-batch arrived where a step was due")
        self._begun, self._taken, self._next_step = arrival, 0, arrival.step + 1
        return Step(arrival, waited, self._take_micro_batch)

    def opening_offer(self) -> Offer:
        """The weights that the attempt begins with: to be handed over before the first step, if the offer says so.

        Blocks until a server accepted the open. With `takes_offers`, once, before the steps.
        """
        if not self._takes_offers or self._offered is not None:
            raise PreconditionError(f"{self._waiter}: the opening offer comes once, to a stream that takes offers")
        arrival, _ = self._take("the opening offer")
        if not isinstance(arrival, Offer):
            raise InternalError(f"{self._waiter}: {type(arrival).__name__} arrived where the opening offer was due")
        self._offered = arrival
        return arrival

    def offers(self) -> Iterator[Offer]:
        """What follows the last step: the last weights, offered again while a sync is wanted that did not land.

        Acknowledge each with `ack_offer`, whatever became of it. Blocks for as long as the server puts the end of the
        run off; ends with the run. Raises `UnavailableError` when no server answers for `patience_s`. The steps are
        done all the same, so that is no fault of the job; but other ranks may be offered more: end together.
        """
        if not (self._takes_offers and self._over):
            raise PreconditionError(f"{self._waiter}: offers follow the last step, on a stream that takes them")
        while not self._ended:
            if self._following is None:
                self._follow(self._take("what follows the last step")[0])
            offer, self._following = self._following, None
            if offer is not None:
                self._offered = offer
                yield offer

    def ack_offer(self, offer: Offer) -> None:
        """Say that this rank is done with an offer, and all before it. Never blocks."""
        if self._offered is None or offer.number > self._offered.number:
            raise InvalidRequestError(f"{self._waiter}: ack of offer {offer.number}, which this stream has not got")
        if offer.number:
            self._uplink.ack_offer(offer.number)

    def _follow(self, arrival: Arrival) -> None:
        """Note what arrived after the last step."""
        if isinstance(arrival, Offer):
            self._following = arrival
        elif isinstance(arrival, RunEnded):
            self._ended = True
        else:
            raise InternalError(f"{self._waiter}: {type(arrival).__name__} arrived after the last step")

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

    def _take(self, wanted: str) -> tuple[StepBegun | MicroBatch | Offer | RunEnded, float]:
        """The next arrival and the seconds waited for it. What failed once keeps failing."""
        self._receiver.check_process()
        if not self._finalizer.alive:
            raise PreconditionError(f"{self._waiter}: the stream is closed")
        if self._failure is not None:
            raise self._failure
        waited_s = 0.0 if self._arrived else self._await(wanted)
        return self._next_arrival(), waited_s

    def _await(self, wanted: str) -> float:
        """Wait for another message; for how many seconds."""
        wait = Wait(f"{self._waiter} waits since {clock()} for {wanted}")
        while not self._arrived:
            try:
                self._arrived.extend(self._receiver.inbox.get(timeout=_POLL_S))
            except Empty:
                self._check_silence(wait)
        return wait.waited_s

    def _next_arrival(self) -> StepBegun | MicroBatch | Offer | RunEnded:
        arrival = self._arrived.popleft()
        if isinstance(arrival, Failure):
            self._failure = arrival.error
            raise arrival.error
        return arrival

    def _check_silence(self, wait: Wait) -> None:
        """Log a long wait; raise when a server is there but silent for `patience_s`.

        A server that is away is the receiver's to judge.
        """
        endpoint, heard = self._receiver.endpoint, self._receiver.heard
        if self._begun is not None and self._taken == self._begun.rounds and self._uplink.owes(self._begun.step):
            endpoint += f" (step {self._begun.step} is taken and not acknowledged: call ack after each step)"
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
            if not self._arrived:
                self._arrived.extend(self._receiver.inbox.get(timeout=_END_WAIT_S))
            self._next_arrival()
        except (Empty, UnavailableError):
            _logger.info("%s: the last step is done, but no server said that the run ended", self._waiter)
