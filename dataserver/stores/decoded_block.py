"""What is kept of a block once it is decoded."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.image_table import ImageTable


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedImages:
    """The images of a block: `grids` int64[3k], `pixels` float16|float32[p]; `table` says where a row's begin."""

    grids: NDArray[np.int64]
    pixels: NDArray[np.float16] | NDArray[np.float32]
    table: ImageTable


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedBlock:
    """Rows of one block: `tokens` uint16|uint32[m], `mask` uint8[m] (None: every token is a target).

    `weights`: float32[m]; None, like `images`, where the store has none.
    Row r lies at `starts[r]` up to `starts[r + 1]` (int64[n + 1]).
    """

    tokens: NDArray[np.uint16] | NDArray[np.uint32]
    mask: NDArray[np.uint8] | None
    weights: NDArray[np.float32] | None = None
    images: DecodedImages | None = None
    starts: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        arrays: list[NDArray[Any] | None] = [self.tokens, self.starts, self.mask, self.weights]
        if self.images is not None:
            arrays += [self.images.grids, self.images.pixels]
        return sum(array.nbytes for array in arrays if array is not None)
