"""The planner: from a cursor to the next step.

    cursor ──cut──> samples of the step ──pack──> rounds ──> Plan, with the cursor that follows
       └──cut W times──> window ──deal──> samples of each of its steps ──pack──> …

It holds no state beyond a memo of values that it could compute again.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dataserver.cursor import Cursor, Deal, Window
from dataserver.errors import InvalidRequestError, InvalidSpecError
from dataserver.packing.figures import packing_figures
from dataserver.packing.pack import CostModel, Rounds, pack
from dataserver.planning.check import MAX_DP_WORLD_SIZE, check_cursor
from dataserver.planning.cut import Stretch, cut_step, moved
from dataserver.planning.deal import DealtSamples, deal_window
from dataserver.planning.digest import plan_digest
from dataserver.planning.fingerprint import PLANNER_VERSION
from dataserver.planning.plan import EndOfRun, Plan, SampleTable
from dataserver.run_spec import BatchSpec
from dataserver.sampling.order import SampleOrder, Samples

_WINDOWS_REMEMBERED = 4


@dataclass(frozen=True, slots=True)
class _Step:
    """The samples of a step in stream order, their lengths, and the cursor that follows.

    `dealt`: rounds that these samples had when a window was dealt for the same ranks and batch spec.
    """

    samples: Samples
    lengths: NDArray[np.int64]
    end: Cursor
    dealt: Rounds = ()


@dataclass(frozen=True, slots=True)
class _DealtWindow:
    """The samples of a window in stream order, their lengths, and the step of each."""

    samples: Samples
    lengths: NDArray[np.int64]
    deal: DealtSamples

    def step(self, number: int, end: Cursor, *, with_rounds: bool) -> _Step:
        members = np.flatnonzero(self.deal.steps == number)
        dealt: Rounds = ()
        if with_rounds and self.deal.rounds:
            dealt = tuple(tuple(np.searchsorted(members, bin_) for bin_ in group) for group in self.deal.rounds[number])
        return _Step(self.samples.take(members), self.lengths[members], end, dealt)


class Planner:
    """Plans the steps of one order. Safe to share between threads.

    Raises `InvalidSpecError` when no source has a row left: such an order has no first step.
    """

    def __init__(self, order: SampleOrder, table: SampleTable, order_fingerprint: str) -> None:
        if order.epoch_size == 0:
            raise InvalidSpecError(
                f"an epoch has no samples: none of the {len(order.sizes)} sources keeps a row. "
                "Look at the counts of dropped rows; max_length may cut off every target"
            )
        self._order = order
        self._table = table
        self._order_fingerprint = order_fingerprint
        self._dealt_window = lru_cache(maxsize=_WINDOWS_REMEMBERED)(self._deal_window)

    def initial_cursor(self) -> Cursor:
        """Where the first step begins."""
        return Cursor(order_fingerprint=self._order_fingerprint)

    def check(self, cursor: Cursor) -> None:
        """Return if a step of this order can begin at `cursor`.

        Raises `ForeignCursorError` for a cursor of another order, `PlanMismatchError` inside a
        window that another planner version dealt, `InvalidRequestError` for a position that no
        step can end at.
        """
        check_cursor(cursor, order_fingerprint=self._order_fingerprint, epoch_size=self._order.epoch_size)

    def plan(self, cursor: Cursor, batch: BatchSpec, dp_world_size: int) -> Plan | EndOfRun:
        """The step that begins at `cursor`, for `dp_world_size` ranks; or why there is none.

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
        step = self._next_step(cursor, batch, dp_world_size)
        return self._packed(cursor, step, batch, dp_world_size)

    def _next_step(self, cursor: Cursor, batch: BatchSpec, dp_world_size: int) -> _Step:
        if cursor.window is not None:
            return self._window_step(cursor, cursor.window, _deal_inputs(batch, dp_world_size))
        stretch = Stretch(
            self._order, self._table, epoch=cursor.epoch, position=cursor.position, max_epochs=batch.max_epochs
        )
        stops = _cut_window(stretch, batch, dp_world_size, steps_left=_steps_left(cursor, batch))
        if len(stops) > 1:
            inputs = _deal_inputs(batch, dp_world_size)
            return self._window_step(
                cursor, Window(steps=len(stops), steps_done=0, samples=stops[-1], deal=inputs), inputs
            )
        samples, lengths = stretch.first(stops[0])
        return _Step(samples, lengths, self._moved(cursor, stops[0]))

    def _window_step(self, cursor: Cursor, window: Window, inputs: Deal) -> _Step:
        """Step `window.steps_done` of a window that begins at the cursor's position.

        Packed by other `inputs` than the window was dealt by, it keeps its samples but not their rounds.
        """
        dealt = self._dealt_window(cursor.epoch, cursor.position, window.steps, window.samples, window.deal)
        done = window.steps_done + 1
        if done == window.steps:
            end = self._moved(cursor, window.samples)
        else:
            end = replace(cursor, step=cursor.step + 1, window=replace(window, steps_done=done))
        return dealt.step(window.steps_done, end, with_rounds=inputs == window.deal)

    def _deal_window(self, epoch: int, position: int, steps: int, count: int, deal: Deal) -> _DealtWindow:
        stretch = Stretch(self._order, self._table, epoch=epoch, position=position, max_epochs=None)
        samples, lengths = stretch.first(count)
        return _DealtWindow(samples, lengths, deal_window(lengths, steps, deal))

    def _moved(self, cursor: Cursor, count: int) -> Cursor:
        epoch, position = moved(cursor.epoch, cursor.position, count, self._order)
        return replace(cursor, step=cursor.step + 1, epoch=epoch, position=position, window=None)

    def _packed(self, begin: Cursor, step: _Step, batch: BatchSpec, dp_world_size: int) -> Plan:
        cost = CostModel(batch.cost_linear, batch.cost_quadratic)
        rounds = pack(
            step.lengths,
            dp_world_size=dp_world_size,
            capacity=batch.micro_batch_tokens,
            alignment=batch.alignment,
            policy=batch.policy,
            cost=cost,
            round_multiple=batch.step_rounds or 1,
            known=step.dealt,
        )
        target_count = int(self._table.targets(step.samples).sum())
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
            target_count=target_count,
            token_count=int(step.lengths.sum()),
            last=last,
            digest=digest,
            figures=packing_figures(step.lengths, rounds, capacity=batch.micro_batch_tokens, cost=cost),
        )


def _epochs_done(cursor: Cursor, batch: BatchSpec) -> bool:
    return batch.max_epochs is not None and cursor.epoch >= batch.max_epochs


def _steps_left(cursor: Cursor, batch: BatchSpec) -> int:
    """Steps of the window that begins at `cursor`, if the epochs last so long."""
    if batch.max_steps is None:
        return batch.lookahead_steps
    return min(batch.lookahead_steps, batch.max_steps - cursor.step)


def _cut_window(stretch: Stretch, batch: BatchSpec, dp_world_size: int, steps_left: int) -> list[int]:
    """Where up to `steps_left` steps stop; at least one, and none of them empty."""
    stops: list[int] = []
    while len(stops) < steps_left:
        start = stops[-1] if stops else 0
        stop = cut_step(stretch, start, batch, dp_world_size)
        if stop == start:
            break
        stops.append(stop)
    return stops


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
