"""Whether a step can begin at a cursor: it comes from a checkpoint, so nothing in it is taken on trust."""

from collections.abc import Sequence

from dataserver.cursor import Cursor, Deal, Window
from dataserver.errors import ForeignCursorError, InvalidRequestError, PlanMismatchError
from dataserver.planning.cut import MAX_PLANNED_SAMPLES
from dataserver.planning.fingerprint import PLANNER_VERSION, differing_fields
from dataserver.planning.stages import PlannedStage, refuse_passed_stage
from dataserver.run_spec import MAX_COUNT, MAX_MICRO_BATCH_TOKENS, PackingPolicy
from dataserver.sampling.order import Place, SampleOrder

# A plan is a list of bins, empty ones too; more ranks than this are a mistake of the caller.
MAX_DP_WORLD_SIZE = 65536

_MAX_COUNT = 2**63 - 1


def check_cursor(cursor: Cursor, stages: Sequence[PlannedStage]) -> None:
    """Return if a step can begin at `cursor`; see `Planner.check` for what is raised."""
    _check_whole("stage", cursor.stage, 0, len(stages) - 1)
    stage = stages[cursor.stage]
    if cursor.order_fingerprint != stage.fingerprint:
        fields = ", ".join(differing_fields(str(cursor.order_fingerprint), stage.fingerprint))
        raise ForeignCursorError(
            f"the cursor of step {cursor.step} belongs to another order: {fields} differ "
            f"(cursor {cursor.order_fingerprint}, run {stage.fingerprint}). "
            "Resume with the spec and the stores that the checkpoint was made with, or start a new run",
            fields=fields,
        )
    _check_whole("step", cursor.step, stage.first_step if cursor.stage else 0, _MAX_COUNT)
    # What sources drew is counted over all epochs.
    last_epoch = MAX_COUNT // stage.order.epoch_size if stage.order.by_weight else _MAX_COUNT
    _check_whole("epoch", cursor.epoch, 0, last_epoch)
    _check_whole("position", cursor.position, 0, stage.order.epoch_size - 1)
    _check_source_positions(cursor, stage.order)
    if cursor.window is not None:
        _check_window(cursor.window, cursor.step)
    refuse_passed_stage(cursor, [stage.first_step for stage in stages])


def _check_source_positions(cursor: Cursor, order: SampleOrder) -> None:
    """They are there in later stages that draw by weight, and lie at or beyond what this epoch drew."""
    positions = cursor.source_positions
    if not (cursor.stage and order.by_weight):
        if positions:
            raise InvalidRequestError(
                f"cursor: source_positions = {positions}, but here `epoch` and `position` say it all"
            )
        return
    if len(positions) != len(order.sizes):
        raise InvalidRequestError(
            f"cursor: source_positions = {positions} are {len(positions)}, and the order has {len(order.sizes)} sources"
        )
    drawn = order.drawn(Place(position=cursor.position)).values()
    for source, (position, least) in enumerate(zip(positions, drawn, strict=True)):
        _check_whole(f"source_positions[{source}]", position, least, MAX_COUNT)


def _check_window(window: Window, step: int) -> None:
    _check_whole("window.samples", window.samples, 2, MAX_PLANNED_SAMPLES)
    _check_whole("window.steps", window.steps, 2, window.samples)
    _check_whole("window.steps_done", window.steps_done, 1, min(window.steps - 1, step))
    _check_deal(window.deal)


def _check_deal(deal: Deal) -> None:
    if deal.planner_version != PLANNER_VERSION:
        raise PlanMismatchError(
            f"the cursor stands inside a lookahead window that planner version {deal.planner_version} dealt, and this "
            f"server has version {PLANNER_VERSION}, which may deal it otherwise: finish the window with the server "
            "that began it, or resume from a checkpoint between two windows",
            sealed=deal.planner_version,
            computed=PLANNER_VERSION,
        )
    _check_whole("window.deal.dp_world_size", deal.dp_world_size, 1, MAX_DP_WORLD_SIZE)
    _check_whole("window.deal.micro_batch_tokens", deal.micro_batch_tokens, 2, MAX_MICRO_BATCH_TOKENS)
    _check_whole("window.deal.alignment", deal.alignment, 1, 65536)
    _check_whole("window.deal.cost_linear", deal.cost_linear, 0, _MAX_COUNT)
    _check_whole("window.deal.cost_quadratic", deal.cost_quadratic, 0 if deal.cost_linear else 1, _MAX_COUNT)
    if deal.policy not in tuple(PackingPolicy):
        raise InvalidRequestError(f"cursor: window.deal.policy = {deal.policy!r} is none of {[*PackingPolicy]}")


def _check_whole(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidRequestError(f"cursor: {name} = {value!r} is not a whole number in {low}..{high}")
