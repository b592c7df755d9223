"""The cut: which samples make a step.

The order is one sequence over epochs. A step takes whole samples from the cursor on: the
largest prefix within `step_tokens`, `step_samples` of them, or what packs into `step_rounds`.
Lengths are read ahead in chunks about as large as what is still needed, so a cut costs the same
at any depth of the order.

What stands at a position may be no sample: a row of a lazily admitted store of which nothing is
served has length 0. It takes a position and no place in a step. Such positions belong to the step
of the sample before them, so that a step ends where another sample stands, or where all ends.
"""

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidSpecError
from dataserver.packing.modality import HasImages, rounds_needed
from dataserver.packing.pack import footprints_of
from dataserver.planning.plan import SampleTable
from dataserver.run_spec import BatchSpec
from dataserver.sampling.order import Place, SampleOrder, Samples

# Packing holds some hundred bytes a sample in Python lists and takes some microseconds each, so
# this many are some ten seconds and most of a gigabyte, for which the plans of other runs wait;
# nobody trains on steps or windows as large.
MAX_PLANNED_SAMPLES = 2**21

_FIRST_CHUNK = 256


class Stretch:
    """The samples from `place` on, read as far as was asked.

    It ends where `max_epochs` ends. `samples` and `lengths` (int64[n], each at least 1) are what was read so far.
    """

    def __init__(self, order: SampleOrder, table: SampleTable, *, place: Place, max_epochs: int | None) -> None:
        self._order = order
        self._table = table
        self._place = place
        self._max_epochs = max_epochs
        self._positions = 0
        self._at: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.samples = Samples(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64))
        self.lengths: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    @property
    def exhausted(self) -> bool:
        """Whether the last epoch is read to its end."""
        return self._max_epochs is not None and self._place.epoch >= self._max_epochs

    def first(self, count: int) -> tuple[Samples, NDArray[np.int64]]:
        """The first `count` samples, which were read, and their lengths."""
        return Samples(self.samples.source[:count], self.samples.row[:count]), self.lengths[:count]

    def positions(self, count: int) -> int:
        """How many positions the first `count` samples take, up to the next sample or to the end of everything."""
        while len(self.lengths) <= count and not self.exhausted:
            self._read(self._clip(1))
        return int(self._at[count]) if count < len(self.lengths) else self._positions

    def has_images(self, begin: int, end: int) -> HasImages:
        """Which of the samples from `begin` up to `end`, which were read, have images."""
        return self._table.has_images(Samples(self.samples.source[begin:end], self.samples.row[begin:end]))

    def read(self, count: int) -> None:
        """Read at least `count` positions more, or as many as there are."""
        count = self._clip(max(count, self._positions // 8))  # copying stays linear over a window's many reads
        if self._positions + count > MAX_PLANNED_SAMPLES:
            raise InvalidSpecError(
                f"a step, or a window of lookahead_steps, spans more than {MAX_PLANNED_SAMPLES} samples "
                f"({len(self.lengths)} of the first {self._positions} are served): "
                "lower step_tokens, step_samples or lookahead_steps"
            )
        self._read(count)

    def _read(self, count: int) -> None:
        self._refuse_nothing_served()
        found = self._order.samples(self._place, count)
        lengths = self._table.lengths(found).astype(np.int64)
        served = np.flatnonzero(lengths)
        if len(served) < count:
            found, lengths = found.take(served), lengths[served]
        self._place = self._order.moved(self._place, count)
        self.samples = Samples(
            np.concatenate([self.samples.source, found.source]), np.concatenate([self.samples.row, found.row])
        )
        self.lengths = np.concatenate([self.lengths, lengths])
        self._at = np.concatenate([self._at, served + self._positions])
        self._positions += count

    def _refuse_nothing_served(self) -> None:
        """Twice as many positions as an epoch has hold a whole one."""
        last = int(self._at[-1]) + 1 if len(self._at) else 0
        if self._positions - last >= 2 * self._order.epoch_size:
            raise InvalidSpecError(
                f"none of the {self._order.epoch_size} rows of an epoch is served: all of them have no target within "
                "max_length, or are dropped for their length"
            )

    def _clip(self, count: int) -> int:
        """`count`, or what is left of the last epoch."""
        if self._max_epochs is None:
            return count
        place = self._place
        return min(count, (self._max_epochs - place.epoch) * self._order.epoch_size - place.position)


def cut_step(stretch: Stretch, start: int, batch: BatchSpec, dp_world_size: int) -> int:
    """Where the step that begins at sample `start` of `stretch` stops: `start` when nothing is left.

    The number of ranks counts with `step_rounds` only.

    Raises `InvalidSpecError` when the first sample alone exceeds `step_tokens`.
    """
    if batch.step_tokens is not None:
        return _cut_tokens(stretch, start, batch.step_tokens)
    if batch.step_samples is not None:
        return _cut_samples(stretch, start, batch.step_samples)
    if batch.step_rounds is not None:
        return _cut_rounds(stretch, start, batch, batch.step_rounds, dp_world_size)
    raise InvalidSpecError("the batch spec has no step_tokens, step_samples or step_rounds: give one of them")


def cut_window(stretch: Stretch, batch: BatchSpec, dp_world_size: int, steps_left: int) -> list[int]:
    """Where up to `steps_left` steps stop; none of them empty, and none at all when nothing is left."""
    stops: list[int] = []
    while len(stops) < steps_left:
        start = stops[-1] if stops else 0
        stop = cut_step(stretch, start, batch, dp_world_size)
        if stop == start:
            break
        stops.append(stop)
    return stops


def _cut_samples(stretch: Stretch, start: int, count: int) -> int:
    while (missing := start + count - len(stretch.lengths)) > 0 and not stretch.exhausted:
        stretch.read(missing)
    return min(start + count, len(stretch.lengths))


def _cut_tokens(stretch: Stretch, start: int, budget: int) -> int:
    while True:
        sums = np.cumsum(stretch.lengths[start:])
        fitting = int(np.searchsorted(sums, budget, side="right"))
        if fitting < len(sums) or stretch.exhausted:
            break
        stretch.read(_guess(budget, int(sums[-1]) if fitting else 0, fitting))
    if fitting == 0 and len(sums) > 0:
        raise InvalidSpecError(
            f"a sample of {int(sums[0])} tokens exceeds step_tokens = {budget}: raise step_tokens or lower max_length"
        )
    return start + fitting


def _cut_rounds(stretch: Stretch, start: int, batch: BatchSpec, rounds: int, dp_world_size: int) -> int:
    """Where samples stop to pack into `rounds`: they do up to there, and with one sample more they do not.

    Packing is no monotonic function of the samples, so there can be several such places. Halving
    finds the same one everywhere; it begins between half of what the bins hold and all of it.
    """
    room = rounds * dp_world_size * batch.micro_batch_tokens
    footprints = _full_bins(stretch, start, batch, room)
    has_images = stretch.has_images(start, start + len(footprints))
    fitting, count = 0, len(footprints) + 1
    probe = int(np.searchsorted(np.cumsum(footprints), room // 2)) or 1
    while count - fitting > 1:
        needed = rounds_needed(
            footprints[:probe],
            None if has_images is None else has_images[:probe],
            capacity=batch.micro_batch_tokens,
            policy=batch.policy,
            dp_world_size=dp_world_size,
        )
        if needed <= rounds:
            fitting = probe
        else:
            count = probe
        probe = (fitting + count) // 2
    return start + fitting


def _full_bins(stretch: Stretch, start: int, batch: BatchSpec, room: int) -> NDArray[np.int64]:
    """Footprints of the samples from `start` on, int64[n], as many as take at most `room` together."""
    while True:
        footprints = footprints_of(
            stretch.lengths[start:], capacity=batch.micro_batch_tokens, alignment=batch.alignment
        )
        sums = np.cumsum(footprints)
        fitting = int(np.searchsorted(sums, room, side="right"))
        if fitting < len(sums) or stretch.exhausted:
            return footprints[:fitting]
        stretch.read(_guess(room, int(sums[-1]) if fitting else 0, fitting))


def _guess(budget: int, tokens: int, samples: int) -> int:
    """How many samples more probably reach beyond the budget."""
    if samples == 0:
        return _FIRST_CHUNK
    return (budget - tokens) * samples // tokens + samples // 16 + 16
