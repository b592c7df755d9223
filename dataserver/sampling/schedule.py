"""An epoch of weighted sources: how long it is, and which source each of its positions draws.

    first_exhausted                    up to the draw that takes the last row of some source
    all_exhausted                      up to the draw by which every source was gone through
    all_exhausted_without_replacement  every row once: a source that is exhausted stays out, and the
                                       others go on by their weights; each time, a new phase begins
    with_replacement                   as many draws as the sources have rows

All of it follows from sizes and weights, so it is known before the first step, and every epoch
draws the sources in the same pattern; only their rows differ.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidSpecError
from dataserver.sampling.draw import SMALLEST_SHARE, Draw
from dataserver.sampling.order import check_epoch_size
from dataserver.weighting import Stopping


@dataclass(frozen=True, slots=True)
class _Phase:
    """From position `begin` on `draw` decides; each source was drawn `before` times until then."""

    begin: int
    before: tuple[int, ...]
    draw: Draw


class Schedule:
    """The sources of the positions of an epoch. `size`: its samples; `counts`: those of each source.

    Takes the kept rows of each source, by its name, and its weight. Raises `InvalidSpecError` for what cannot be done.
    """

    def __init__(
        self, names: Sequence[str], sizes: Sequence[int], weights: Sequence[Fraction], stopping: Stopping
    ) -> None:
        once = stopping is Stopping.ALL_EXHAUSTED_WITHOUT_REPLACEMENT
        _check(names, sizes, weights, empty_is_exhausted=once)
        if once:
            self._phases, self.size = _phases(sizes, weights)
        else:
            draw = Draw(weights)
            self._phases = [_Phase(0, (0,) * len(sizes), draw)]
            self.size = _length(draw, sizes, weights, stopping)
        check_epoch_size(self.size)
        self._begins = [phase.begin for phase in self._phases]
        self.counts = self.counts_before(self.size)

    def counts_before(self, position: int) -> tuple[int, ...]:
        """Samples of each source before `position`."""
        phase = self._phases[int(np.searchsorted(self._begins, position, side="right")) - 1]
        drawn = phase.draw.counts(position - phase.begin)
        return tuple(before + count for before, count in zip(phase.before, drawn, strict=True))

    def targets_before(self, position: int) -> tuple[list[float], list[float]]:
        """Samples of each source before `position` by the weights, undivided; and the most that `counts_before` is off.

        A source that is exhausted has no weight in the phases that follow.
        """
        targets, errors = [0.0] * len(self.counts), [0.0] * len(self.counts)
        ends = [*self._begins[1:], self.size]
        for phase, phase_end in zip(self._phases, ends, strict=True):
            draws = min(position, phase_end) - phase.begin
            if draws > 0:
                targets = list(map(operator.add, targets, phase.draw.targets(draws)))
                errors = list(map(operator.add, errors, phase.draw.errors(draws)))
        return targets, errors

    def __call__(self, begin: int, end: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Of positions begin..end-1: the source, int32[n], and how often it was drawn in the epoch before, int64[n]."""
        sources, numbers = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int64)]
        ends = [*self._begins[1:], self.size]
        for phase, phase_end in zip(self._phases, ends, strict=True):
            first, last = max(begin, phase.begin), min(end, phase_end)
            if first < last:
                source, number = phase.draw(np.arange(first - phase.begin, last - phase.begin, dtype=np.int64))
                sources.append(source)
                numbers.append(number + np.array(phase.before, dtype=np.int64)[source])
        return np.concatenate(sources), np.concatenate(numbers)


def _check(
    names: Sequence[str], sizes: Sequence[int], weights: Sequence[Fraction], *, empty_is_exhausted: bool
) -> None:
    total = sum(weights)
    if not any(size for size, weight in zip(sizes, weights, strict=True) if weight):
        raise InvalidSpecError(
            f"none of the sources that have a weight keeps a row: {', '.join(names)}. "
            "Look at the counts of dropped rows; max_length may cut off every target"
        )
    for name, size, weight in zip(names, sizes, weights, strict=True):
        if weight and not size and not empty_is_exhausted:
            raise InvalidSpecError(
                f"source {name!r} has a weight but no row to draw: none of its rows is kept. Set its weight to 0, or "
                "look at the counts of dropped rows",
                store=name,
            )
        if weight and weight < SMALLEST_SHARE * total:
            raise InvalidSpecError(
                f"the weight of source {name!r} is {float(weight / total):.3g} of all, and the least that can be "
                f"drawn is {float(SMALLEST_SHARE):.3g}: raise it, or turn the source off with weight 0",
                store=name,
            )


def _length(draw: Draw, sizes: Sequence[int], weights: Sequence[Fraction], stopping: Stopping) -> int:
    on = [source for source, weight in enumerate(weights) if weight]
    if stopping is Stopping.WITH_REPLACEMENT:
        return sum(sizes[source] for source in on)
    exhausted = [draw.until(source, sizes[source]) for source in on]
    return min(exhausted) if stopping is Stopping.FIRST_EXHAUSTED else max(exhausted)


def _phases(sizes: Sequence[int], weights: Sequence[Fraction]) -> tuple[list[_Phase], int]:
    """One phase until each source is exhausted, and the end of the last."""
    phases: list[_Phase] = []
    begin, before = 0, (0,) * len(sizes)
    while True:
        left = [size - count if weight else 0 for size, count, weight in zip(sizes, before, weights, strict=True)]
        if not any(left):
            return phases, begin
        draw = Draw([weight if rows else Fraction(0) for weight, rows in zip(weights, left, strict=True)])
        phases.append(_Phase(begin, before, draw))
        length = min(draw.until(source, rows) for source, rows in enumerate(left) if rows)
        drawn = draw.counts(length)
        begin, before = begin + length, tuple(count + more for count, more in zip(before, drawn, strict=True))
