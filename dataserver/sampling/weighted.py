"""Sources drawn by weight: first the source, then the next row of its own order.

    position ──schedule──> source, how often it was drawn before
    drawn so often since the run began ──arrangement of the source's own epoch──> row

A source goes through its rows again and again, each time in another order, whatever the epochs
of the mixture are. Memory is proportional to the number of sources.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import OutOfRangeError
from dataserver.sampling.arrangement import Arrangement
from dataserver.sampling.order import Place, Samples, SourceDraws
from dataserver.sampling.schedule import Schedule


class WeightedOrder:
    """Implements `SampleOrder`. `names`: stores of the sources; `arrangements`: how the rows of each come.

    `each_row_once`: an epoch of the mixture is one of each source, so that a later stage begins each source's next.
    """

    by_weight = True

    def __init__(
        self, names: Sequence[str], arrangements: Sequence[Arrangement], schedule: Schedule, *, each_row_once: bool
    ) -> None:
        self.sizes = tuple(arrangement.size for arrangement in arrangements)
        self.epoch_size = schedule.size
        self.epoch_counts = schedule.counts
        self._names = tuple(names)
        self._arrangements = tuple(arrangements)
        self._schedule = schedule
        self._each_row_once = each_row_once

    def samples(self, place: Place, count: int) -> Samples:
        """The `count` samples from `place` on; raises `OutOfRangeError` for a place outside of an epoch."""
        if count and not 0 <= place.position < self.epoch_size:
            raise OutOfRangeError(f"position {place.position} is not in an epoch of {self.epoch_size} samples")
        sources, numbers = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int64)]
        begins = np.array(self._positions(place), dtype=np.int64) - self._schedule.counts_before(place.position)
        position = place.position
        while count > 0:
            end = min(position + count, self.epoch_size)
            source, number = self._schedule(position, end)
            sources.append(source)
            numbers.append(number + begins[source])
            begins += self.epoch_counts
            count -= end - position
            position = 0
        source, number = np.concatenate(sources), np.concatenate(numbers)
        return Samples(source, self._rows(source, number))

    def moved(self, place: Place, count: int) -> Place:
        """The place after `count` samples."""
        epochs, position = divmod(place.position + count, self.epoch_size)
        moved = Place(epoch=place.epoch + epochs, position=position)
        if not place.source_positions:
            return moved
        before, after = self._in_order(place.epoch, place.position), self._in_order(moved.epoch, moved.position)
        positions = (at - old + new for at, old, new in zip(place.source_positions, before, after, strict=True))
        return Place(epoch=moved.epoch, position=position, source_positions=tuple(positions))

    def drawn(self, place: Place) -> Mapping[str, int]:
        """Samples drawn of each store since the run began."""
        return dict(zip(self._names, self._positions(place), strict=True))

    def draws(self, begin: Place, end: Place) -> list[SourceDraws]:
        """What came of each source from `begin`, the start of an epoch, to `end`. Every epoch may be off anew."""
        whole, part = self._schedule.targets_before(self.epoch_size), self._schedule.targets_before(end.position)
        (targets, errors), epochs = zip(whole, part, strict=True), end.epoch - begin.epoch
        before, after = self._positions(begin), self._positions(end)
        return [
            SourceDraws(
                store=name,
                draws=after[source] - before[source],
                target=epochs * targets[0][source] + targets[1][source],
                error=epochs * errors[0][source] + errors[1][source],
            )
            for source, name in enumerate(self._names)
        ]

    def begin(self, epoch: int, drawn: Mapping[str, int]) -> Place:
        """The start of `epoch`: each source goes on where it stood; one that was not drawn by weight begins."""
        positions = [drawn.get(name, 0) for name in self._names]
        if self._each_row_once:
            positions = [-(-at // size) * size if size else at for at, size in zip(positions, self.sizes, strict=True)]
        return Place(epoch=epoch, source_positions=tuple(positions))

    def _positions(self, place: Place) -> tuple[int, ...]:
        return place.source_positions or self._in_order(place.epoch, place.position)

    def _in_order(self, epoch: int, position: int) -> tuple[int, ...]:
        """Samples of each source from the beginning of the order on."""
        counts = self._schedule.counts_before(position)
        return tuple(epoch * whole + count for whole, count in zip(self.epoch_counts, counts, strict=True))

    def _rows(self, source: NDArray[np.int32], number: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = np.empty(len(number), dtype=np.int64)
        for drawn in np.unique(source).tolist():
            at = np.flatnonzero(source == drawn)
            arrangement = self._arrangements[drawn]
            epochs, positions = np.divmod(number[at], arrangement.size)
            bounds = [0, *(np.flatnonzero(np.diff(epochs)) + 1).tolist(), len(at)]
            for begin, end in pairwise(bounds):
                rows[at[begin:end]] = arrangement.rows(int(epochs[begin]), positions[begin:end])
        return rows
