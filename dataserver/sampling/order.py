"""The order of an epoch: which row of which source stands at which position.

    position ──permutation(seed, epoch)──> row of the union ──sizes──> (source, row)

Pure arithmetic: no state, no memory proportional to rows. Any position of any epoch costs
the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidSpecError, OutOfRangeError
from dataserver.run_spec import Shuffle
from dataserver.sampling.permutation import MAX_SIZE, Permutation


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples as two arrays of one length n.

    `source`: int32[n], index into the order's sources.
    `row`: int64[n], row number among the *kept* rows of that source.
    """

    source: NDArray[np.int32]
    row: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)

    def take(self, indices: NDArray[np.int64]) -> "Samples":
        """The samples at `indices` (int64[m]), in that order."""
        return Samples(self.source[indices], self.row[indices])


class SampleOrder:
    """The union of all sources: every kept row once an epoch, in an order of the epoch's own.

    `sizes` are the kept rows of each source; a source may have none. Raises `InvalidSpecError`
    for 2^40 rows or more.
    """

    __slots__ = ("_ends", "_seed", "_shuffle", "epoch_size", "sizes")

    def __init__(self, sizes: tuple[int, ...], seed: int, shuffle: Shuffle) -> None:
        self.sizes = sizes
        self.epoch_size = sum(sizes)
        if self.epoch_size >= MAX_SIZE:
            raise InvalidSpecError(f"the sources hold {self.epoch_size} rows together: the limit is {MAX_SIZE - 1}")
        self._seed = seed
        self._shuffle = shuffle
        self._ends = np.cumsum(np.array(sizes, dtype=np.int64))

    def samples(self, epoch: int, start: int, stop: int) -> Samples:
        """The samples at positions start..stop-1 of `epoch`.

        Raises `OutOfRangeError` unless 0 <= start <= stop <= epoch_size.
        """
        if not 0 <= start <= stop <= self.epoch_size:
            raise OutOfRangeError(f"positions {start}:{stop} are not in an epoch of {self.epoch_size} samples")
        rows = np.arange(start, stop, dtype=np.int64)
        if self._shuffle is Shuffle.FULL:
            rows = Permutation(self.epoch_size, self._seed, epoch)(rows)
        # The first end above a row is that of its source; ends of empty sources equal the one before.
        source = np.searchsorted(self._ends, rows, side="right")
        rows -= np.concatenate(([0], self._ends))[source]
        return Samples(source.astype(np.int32), rows)
