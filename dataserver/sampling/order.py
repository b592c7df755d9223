"""The order of an epoch: which row of which source stands at which position.

    position ──permutation(seed, epoch)──> row of the union ──sizes──> (source, row)

Pure arithmetic: no state, no memory proportional to rows. Any position of any epoch costs
the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
