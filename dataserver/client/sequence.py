"""What has arrived of a run's steps, and what a new connection has to send again.

A stream is resumed at a step, so a step that was cut off is sent again from its first round.
The rounds that arrived before are passed over, and the step must be the same one: had another
plan been sealed meanwhile, half of each would be trained.
"""

from dataserver.cursor import Cursor
from dataserver.errors import InternalError, PlanMismatchError
from dataserver.weight_sync import Offer
from dataserver.wire.micro_batch import MicroBatch
from dataserver.wire.responses import StepBegun


class Sequence:
    """The steps, rounds and offers of one rank, in order, across connections."""

    def __init__(self, next_step: int) -> None:
        self._first_step = next_step
        self._begun: StepBegun | None = None
        self._before: StepBegun | None = None
        self._arrived = 0
        self._round: int | None = None
        self._offers: dict[int, Offer] = {}

    @property
    def next_step(self) -> int:
        """The step that a new connection has to begin with."""
        if self._begun is None:
            return self._first_step
        return self._begun.step if self._arrived < self._begun.rounds else self._begun.step + 1

    @property
    def begin(self) -> Cursor | None:
        """Where that step begins; None where nothing arrived before it."""
        before = self._before if self._begun is None or self._begun.step == self.next_step else self._begun
        return None if before is None else before.end

    def reconnect(self) -> None:
        """Expect `next_step` from its beginning."""
        self._round = None

    def admit_step(self, begun: StepBegun) -> bool:
        """Tell whether this step is new; False: it is sent again after a reconnect.

        Raises `PlanMismatchError` when it is sent again and differs.
        """
        if begun.step != self.next_step:
            raise InternalError(f"the server began step {begun.step} where step {self.next_step} is due")
        self._round = 0
        if self._begun is not None and begun.step == self._begun.step:
            if begun != self._begun:
                raise PlanMismatchError(_difference(self._begun, begun), step=begun.step)
            return False
        self._before, self._begun, self._arrived = self._begun, begun, 0
        return True

    def admit_micro_batch(self, micro_batch: MicroBatch) -> bool:
        """Tell whether this micro-batch is new; False: it arrived over an earlier connection."""
        step = None if self._begun is None else self._begun.step
        if self._round is None or (micro_batch.step, micro_batch.round) != (step, self._round):
            raise InternalError(
                f"the server sent round {micro_batch.round} of step {micro_batch.step} where round {self._round} of "
                f"step {step} is due"
            )
        self._round += 1
        if micro_batch.round < self._arrived:
            return False
        self._arrived += 1
        return True

    def admit_offer(self, offer: Offer) -> bool:
        """Tell whether this offer is new; False: it is made again after a reconnect.

        Raises `PlanMismatchError` when it is made again and differs.
        """
        known = self._offers.get(offer.number)
        if known is not None:
            if offer != known:
                raise PlanMismatchError(f"offer {offer.number} was made again as {offer}, and was {known}")
            return False
        if offer.number != len(self._offers):
            raise InternalError(f"the server made offer {offer.number} where offer {len(self._offers)} is due")
        self._offers[offer.number] = offer
        return True


def _difference(before: StepBegun, after: StepBegun) -> str:
    fields = [name for name in StepBegun.__slots__ if getattr(before, name) != getattr(after, name)]
    values = ", ".join(f"{name} {getattr(before, name)!r} became {getattr(after, name)!r}" for name in fields)
    return f"step {before.step} was sent again after a reconnect and is another one: {values}"
