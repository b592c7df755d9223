"""The planner: from a cursor to the next step.

    cursor ──cut──> samples of the step ──pack──> rounds ──> Plan, with the cursor that follows
       └──cut W times──> window ──deal──> samples of each of its steps ──pack──> …

It holds no state beyond a memo of values that it could compute again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dataserver.cursor import Cursor, Deal, Window
from dataserver.errors import InvalidRequestError, InvalidSpecError
from dataserver.packing.figures import packing_figures
from dataserver.packing.modality import HasImages, pack_by_modality
from dataserver.packing.pack import CostModel, Rounds
from dataserver.planning.check import MAX_DP_WORLD_SIZE, check_cursor
from dataserver.planning.cut import Stretch, cut_window
from dataserver.planning.deal import DealtSamples, deal_window
from dataserver.planning.digest import plan_digest
from dataserver.planning.fingerprint import PLANNER_VERSION
from dataserver.planning.plan import EndOfRun, Plan, SampleTable
from dataserver.planning.stages import PlannedStage, check_first_steps, entered, place_of
from dataserver.run_spec import BatchSpec
from dataserver.sampling.order import Place, SampleOrder, Samples

_WINDOWS_REMEMBERED = 4


@dataclass(frozen=True, slots=True)
class _Step:
    """The samples of a step in stream order, their lengths and modalities, and the cursor that follows.

    `dealt`: rounds that these samples had when a window was dealt for the same ranks and batch spec.
    """

    samples: Samples
    lengths: NDArray[np.int64]
    has_images: HasImages
    end: Cursor
    dealt: Rounds = ()


@dataclass(frozen=True, slots=True)
class _DealtWindow:
    """The samples of a window in stream order, their lengths and modalities, and the step of each."""

    samples: Samples
    lengths: NDArray[np.int64]
    has_images: HasImages
    deal: DealtSamples

    def step(self, number: int, end: Cursor, *, with_rounds: bool) -> _Step:
        members = np.flatnonzero(self.deal.steps == number)
        dealt: Rounds = ()
        if with_rounds and self.deal.rounds:
            dealt = tuple(tuple(np.searchsorted(members, bin_) for bin_ in group) for group in self.deal.rounds[number])
        has_images = None if self.has_images is None else self.has_images[members]
        return _Step(self.samples.take(members), self.lengths[members], has_images, end, dealt)


class Planner:
    """Plans the steps of a run, of one stage or several. Safe to share between threads.

    Raises `InvalidSpecError` when no source of a stage has a row left: such an order has no first
    step; and when the stages do not follow each other.
    """

    def __init__(self, stages: Sequence[PlannedStage]) -> None:
        check_first_steps([stage.first_step for stage in stages])
        for number, stage in enumerate(stages):
            if stage.order.epoch_size == 0:
                raise InvalidSpecError(
                    f"stage {number}: an epoch has no samples: none of the {len(stage.order.sizes)} sources keeps a "
                    "row. Look at the counts of dropped rows; max_length may cut off every target"
                )
        self._stages = tuple(stages)
        self._dealt_window = lru_cache(maxsize=_WINDOWS_REMEMBERED)(self._deal_window)

    @classmethod
    def of_order(cls, order: SampleOrder, table: SampleTable, order_fingerprint: str) -> Self:
        """The planner of a run whose only stage this is."""
        return cls([PlannedStage(first_step=1, order=order, table=table, fingerprint=order_fingerprint)])

    def initial_cursor(self) -> Cursor:
        """Where the first step begins."""
        return Cursor(order_fingerprint=self._stages[0].fingerprint)

    def check(self, cursor: Cursor) -> None:
        """Return if a step of this run can begin at `cursor`.

        Raises `ForeignCursorError` for a cursor of another order and for one beyond the end of its stage,
        `PlanMismatchError` inside a window that another planner version dealt, `InvalidRequestError` for a position
        that no step can end at.
        """
        check_cursor(cursor, self._stages)

    def plan(self, cursor: Cursor, batch: BatchSpec, dp_world_size: int) -> Plan | EndOfRun:
        """The step that begins at `cursor`, for `dp_world_size` ranks; or why there is none.

        The cursor at its end belongs to the step's own stage: which stage the next step belongs to may be
        decided later.

        Inside a window the window's steps stay what they were dealt, whatever `batch` says, up to
        `max_steps`; how each is packed follows `batch` at once. Raises what `check` raises,
        and `InvalidSpecError` for a sample that `batch` has no room for.
        """
        if not 1 <= dp_world_size <= MAX_DP_WORLD_SIZE:
            raise InvalidRequestError(f"dp_world_size = {dp_world_size} is not in 1..{MAX_DP_WORLD_SIZE}")
        self.check(cursor)
        if batch.max_steps is not None and cursor.step >= batch.max_steps:
            return EndOfRun(end=cursor, reason="max_steps")
        if cursor.window is None and _epochs_done(cursor, batch):
            return EndOfRun(end=cursor, reason="max_epochs")
        step = self._next_step(entered(cursor, self._stages), batch, dp_world_size)
        if step is not None:
            return self._packed(cursor, step, batch, dp_world_size)
        if cursor.step == 0:
            raise InvalidSpecError("no row is served at this max_length: the run would have no step")
        return EndOfRun(end=cursor, reason="max_epochs")

    def _next_step(self, cursor: Cursor, batch: BatchSpec, dp_world_size: int) -> _Step | None:
        """None where nothing that is left of the last epoch is served."""
        if cursor.window is not None:
            return self._window_step(cursor, cursor.window, _deal_inputs(batch, dp_world_size))
        stretch = self._stretch(cursor.stage, place_of(cursor), max_epochs=batch.max_epochs)
        stops = cut_window(stretch, batch, dp_world_size, steps_left=self._steps_left(cursor, batch))
        if not stops:
            return None
        positions = stretch.positions(stops[-1])
        if len(stops) > 1:
            inputs = _deal_inputs(batch, dp_world_size)
            window = Window(steps=len(stops), steps_done=0, samples=positions, deal=inputs)
            return self._window_step(cursor, window, inputs)
        samples, lengths = stretch.first(stops[0])
        has_images = self._stages[cursor.stage].table.has_images(samples)
        return _Step(samples, lengths, has_images, self._moved(cursor, positions))

    def _steps_left(self, cursor: Cursor, batch: BatchSpec) -> int:
        """Steps of the window that begins at `cursor`, if the epochs last so long."""
        ends = [batch.max_steps] if batch.max_steps is not None else []
        ends += [stage.first_step - 1 for stage in self._stages[cursor.stage + 1 :]]
        return min([batch.lookahead_steps, *(end - cursor.step for end in ends)])

    def _stretch(self, stage: int, place: Place, *, max_epochs: int | None) -> Stretch:
        return Stretch(self._stages[stage].order, self._stages[stage].table, place=place, max_epochs=max_epochs)

    def _window_step(self, cursor: Cursor, window: Window, inputs: Deal) -> _Step:
        """Step `window.steps_done` of a window that begins at the cursor's position.

        Packed by other `inputs` than the window was dealt by, it keeps its samples but not their rounds.
        """
        dealt = self._dealt_window(cursor.stage, place_of(cursor), window.steps, window.samples, window.deal)
        done = window.steps_done + 1
        if done == window.steps:
            end = self._moved(cursor, window.samples)
        else:
            end = replace(cursor, step=cursor.step + 1, window=replace(window, steps_done=done))
        return dealt.step(window.steps_done, end, with_rounds=inputs == window.deal)

    def _deal_window(self, stage: int, place: Place, steps: int, count: int, deal: Deal) -> _DealtWindow:
        stretch = self._stretch(stage, place, max_epochs=None)
        stretch.read(count)
        samples, lengths = stretch.samples, stretch.lengths
        has_images = self._stages[stage].table.has_images(samples)
        return _DealtWindow(samples, lengths, has_images, deal_window(lengths, steps, deal, has_images))

    def _moved(self, cursor: Cursor, count: int) -> Cursor:
        """Where `count` positions later the next step begins."""
        place = self._stages[cursor.stage].order.moved(place_of(cursor), count)
        return replace(
            cursor,
            step=cursor.step + 1,
            epoch=place.epoch,
            position=place.position,
            source_positions=place.source_positions,
            window=None,
        )

    def _packed(self, begin: Cursor, step: _Step, batch: BatchSpec, dp_world_size: int) -> Plan:
        cost = CostModel(batch.cost_linear, batch.cost_quadratic)
        rounds, image_rounds = pack_by_modality(
            step.lengths,
            step.has_images,
            dp_world_size=dp_world_size,
            capacity=batch.micro_batch_tokens,
            alignment=batch.alignment,
            policy=batch.policy,
            cost=cost,
            round_multiple=batch.step_rounds or 1,
            known=step.dealt,
        )
        table = self._stages[step.end.stage].table
        target_count = int(table.targets(step.samples).sum())
        weights = table.weights(step.samples)
        last = step.end.step == batch.max_steps or (step.end.window is None and _epochs_done(step.end, batch))
        digest = plan_digest(
            begin=begin,
            end=step.end,
            samples=step.samples,
            lengths=step.lengths,
            rounds=rounds,
            target_count=target_count,
            batch=batch,
            last=last,
        )
        return Plan(
            step=step.end.step,
            begin=begin,
            end=step.end,
            dp_world_size=dp_world_size,
            samples=step.samples,
            lengths=step.lengths,
            rounds=rounds,
            image_rounds=image_rounds,
            target_count=target_count,
            # Rounded once, whatever the order: a plan for other ranks has the same denominator.
            weight_sum=float(target_count) if weights is None else math.fsum(weights.tolist()),
            token_count=int(step.lengths.sum()),
            last=last,
            digest=digest,
            figures=packing_figures(step.lengths, rounds, capacity=batch.micro_batch_tokens, cost=cost),
        )


def _epochs_done(cursor: Cursor, batch: BatchSpec) -> bool:
    return batch.max_epochs is not None and cursor.epoch >= batch.max_epochs


def _deal_inputs(batch: BatchSpec, dp_world_size: int) -> Deal:
    return Deal(
        dp_world_size=dp_world_size,
        micro_batch_tokens=batch.micro_batch_tokens,
        alignment=batch.alignment,
        cost_linear=batch.cost_linear,
        cost_quadratic=batch.cost_quadratic,
        policy=batch.policy.value,
        planner_version=PLANNER_VERSION,
    )
