"""The union of all sources: every kept row of each comes once an epoch.

position ──arrangement(epoch)──> row of the union ──sizes──> (source, row)
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidSpecError, OutOfRangeError
from dataserver.run_spec import Shuffle
from dataserver.sampling.arrangement import Arrangement, Shuffled, Stored
from dataserver.sampling.order import Place, Samples, SourceDraws, check_epoch_size


class UnionOrder:
    """An arrangement of the rows of all sources, laid end to end; implements `SampleOrder`.

    `sizes` are the kept rows of each source; a source may have none. Raises `InvalidSpecError`
    for 2^40 rows or more.
    """

    by_weight = False

    def __init__(self, sizes: tuple[int, ...], arrangement: Arrangement) -> None:
        self.sizes = self.epoch_counts = sizes
        self.epoch_size = check_epoch_size(sum(sizes))
        self._arrangement = arrangement
        self._begins = np.concatenate(([0], np.cumsum(np.array(sizes, dtype=np.int64))))

    def samples(self, place: Place, count: int) -> Samples:
        """The `count` samples from `place` on; raises `OutOfRangeError` for a place outside of an epoch."""
        if count and not 0 <= place.position < self.epoch_size:
            raise OutOfRangeError(f"position {place.position} is not in an epoch of {self.epoch_size} samples")
        rows: list[NDArray[np.int64]] = []
        epoch, position = place.epoch, place.position
        while count > 0:
            stop = min(position + count, self.epoch_size)
            rows.append(self._arrangement.rows(epoch, np.arange(position, stop, dtype=np.int64)))
            count -= stop - position
            epoch, position = epoch + 1, 0
        row = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
        # The first end above a row is that of its source; ends of empty sources equal the one before.
        source = np.searchsorted(self._begins[1:], row, side="right")
        return Samples(source.astype(np.int32), row - self._begins[source])

    def moved(self, place: Place, count: int) -> Place:
        """The place after `count` samples."""
        epochs, position = divmod(place.position + count, self.epoch_size)
        return Place(epoch=place.epoch + epochs, position=position)

    def drawn(self, place: Place) -> Mapping[str, int]:  # noqa: ARG002 - as the protocol has it
        """Nothing: the rows of a source have no order of their own."""
        return {}

    def draws(self, begin: Place, end: Place) -> Sequence[SourceDraws]:  # noqa: ARG002 - as the protocol has it
        """Nothing: no source has a weight."""
        return ()

    def begin(self, epoch: int, drawn: Mapping[str, int]) -> Place:  # noqa: ARG002 - as the protocol has it
        """The start of `epoch`, whatever was drawn before."""
        return Place(epoch=epoch)


def plain_union(sizes: tuple[int, ...], seed: int, shuffle: Shuffle) -> UnionOrder:
    """A union that needs no more than its sizes: `sequential` or `full`; others raise `InvalidSpecError`."""
    if shuffle not in (Shuffle.SEQUENTIAL, Shuffle.FULL):
        raise InvalidSpecError(f"shuffle = {shuffle} cannot be made of sizes alone: use sequential or full")
    size = check_epoch_size(sum(sizes))
    arrangement = Stored(size=size) if shuffle is Shuffle.SEQUENTIAL else Shuffled(size=size, seed=seed)
    return UnionOrder(sizes, arrangement)
