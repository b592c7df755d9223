"""The cut: which samples make a step.

The order is one sequence over epochs. A step takes whole samples from the cursor on: the
largest prefix within `step_tokens`, `step_samples` of them, or what packs into `step_rounds`.
Lengths are read ahead in chunks about as large as what is still needed, so a cut costs the same
at any depth of the order.
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

    It ends where `max_epochs` ends. `samples` and `lengths` (int64[n]) are what was read so far.
    """

    def __init__(self, order: SampleOrder, table: SampleTable, *, place: Place, max_epochs: int | None) -> None:
        self._order = order
        self._table = table
        self._place = place
        self._max_epochs = max_epochs
        self.samples = Samples(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64))
        self.lengths: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    @property
    def exhausted(self) -> bool:
        """Whether the last epoch is read to its end."""
        return self._max_epochs is not None and self._place.epoch >= self._max_epochs

    def first(self, count: int) -> tuple[Samples, NDArray[np.int64]]:
        """The first `count` samples and their lengths, read now unless they were read before."""
        if count > len(self.lengths):
            self.read(count - len(self.lengths))
        return Samples(self.samples.source[:count], self.samples.row[:count]), self.lengths[:count]

    def has_images(self, begin: int, end: int) -> HasImages:
        """Which of the samples from `begin` up to `end`, which were read, have images."""
        return self._table.has_images(Samples(self.samples.source[begin:end], self.samples.row[begin:end]))

    def read(self, count: int) -> None:
        """Read at least `count` samples more, or as many as there are."""
        count = self._clip(max(count, len(self.lengths) // 8))  # copying stays linear over a window's many reads
        if len(self.lengths) + count > MAX_PLANNED_SAMPLES:
            raise InvalidSpecError(
                f"a step, or a window of lookahead_steps, spans more than {MAX_PLANNED_SAMPLES} samples: "
                "lower step_tokens, step_samples or lookahead_steps"
            )
        fresh = self._order.samples(self._place, count)
        self._place = self._order.moved(self._place, count)
        self.samples = Samples(
            np.concatenate([self.samples.source, fresh.source]), np.concatenate([self.samples.row, fresh.row])
        )
        self.lengths = np.concatenate([self.lengths, self._table.lengths(fresh).astype(np.int64)])

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


def _cut_samples(stretch: Stretch, start: int, count: int) -> int:
    missing = start + count - len(stretch.lengths)
    if missing > 0:
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
