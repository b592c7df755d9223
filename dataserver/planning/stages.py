"""Stages: the orders that follow each other in a run.

    steps  1 … 999       1000 … 4999    5000 …
           stage 0       stage 1        stage 2

A stage is appended to a run that is under way; those before it stay what they are. So a cursor
carries the fingerprint of its stage, which covers the stages up to it and none after it, and it
stays valid when others follow.

What a stage begins with: the epoch under way begins anew with its order. A source that both
orders draw by weight goes on where it stood; a union begins with all rows. Steps and lookahead
windows end where a stage begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dataserver.cursor import Cursor
from dataserver.errors import ForeignCursorError, InvalidSpecError
from dataserver.planning.plan import SampleTable
from dataserver.run_spec import MAX_COUNT, OrderSpec
from dataserver.sampling.order import Place, SampleOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """`order` decides from step `first_step` on, up to the step before the next stage's."""

    first_step: int
    order: OrderSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """A stage with this server's stores: all that planning its steps needs.

    `fingerprint` is that of the stages up to this one: see `fingerprint.stage_fingerprints`.
    """

    first_step: int
    order: SampleOrder
    table: SampleTable
    fingerprint: str


def check_first_steps(first_steps: Sequence[int]) -> None:
    """Raise `InvalidSpecError` unless stages can begin at these steps: the first one at 1, each later than the last."""
    if not first_steps or first_steps[0] != 1:
        raise InvalidSpecError(f"the first stage begins at step 1, not at {list(first_steps[:1])}")
    for number in range(1, len(first_steps)):
        before, first = first_steps[number - 1 : number + 1]
        if not before < first <= MAX_COUNT:
            raise InvalidSpecError(
                f"stage {number} would begin at step {first}, and stage {number - 1} begins at step {before}: "
                f"give a later step, at most {MAX_COUNT}"
            )


def earliest_first_step(cursor: Cursor) -> int:
    """The first step at which a stage may begin that is appended while a run stands at `cursor`.

    Steps of a window under way belong together: which samples each has was fixed when the window began.
    """
    window = cursor.window
    return cursor.step + 1 + (window.steps - window.steps_done if window else 0)


def refuse_passed_stage(cursor: Cursor, first_steps: Sequence[int]) -> None:
    """Raise `ForeignCursorError` when the stage that follows the cursor's began at a step before the cursor's next."""
    later = first_steps[cursor.stage + 1 :]
    if later and earliest_first_step(cursor) > later[0]:
        inside = " inside a window" if cursor.window else ""
        raise ForeignCursorError(
            f"the cursor of step {cursor.step} stands in stage {cursor.stage}{inside}, but stage {cursor.stage + 1} of "
            f"the run begins with step {later[0]}: the checkpoint was made before that stage was appended; resume from "
            "an earlier one",
            fields="stages",
        )


def stage_of_step(first_steps: Sequence[int], step: int) -> int:
    """The number of the stage that `step` (from 1 on) belongs to."""
    return max(number for number, first in enumerate(first_steps) if first <= step)


def place_of(cursor: Cursor) -> Place:
    """Where a cursor stands in the order of its stage."""
    return Place(epoch=cursor.epoch, position=cursor.position, source_positions=cursor.source_positions)


def entered(cursor: Cursor, stages: Sequence[PlannedStage]) -> Cursor:
    """`cursor` in the stage of its next step: itself, unless the next stage begins there."""
    number = stage_of_step([stage.first_step for stage in stages], cursor.step + 1)
    if number == cursor.stage:
        return cursor
    before, after = stages[cursor.stage], stages[number]
    place = after.order.begin(cursor.epoch, before.order.drawn(place_of(cursor)))
    return replace(
        cursor,
        stage=number,
        order_fingerprint=after.fingerprint,
        epoch=place.epoch,
        position=place.position,
        source_positions=place.source_positions,
    )
