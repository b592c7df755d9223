"""What admission writes into the index of rows with images, and what they sum up to."""

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.image_table import IMAGE_FLAGS, IMAGE_ROWS
from dataserver.stores.index import Building
from dataserver.stores.pieces import Piece
from dataserver.wire.store_info import ImageFigures

GRID_BYTES = 3 * 8
"""Of one image, on the wire and decoded."""

# The count of a sub-sequence's images, as a varint.
_COUNT_BYTES = 5


class ImageIndex:
    """The rows with images of the pieces added so far. `patch_values`: values of a patch, 0 before the first image."""

    def __init__(self, building: Building) -> None:
        self._building = building
        self.patch_values = 0
        self.decoded_bytes = 0
        self._pixel_bytes = 2
        self._sums: NDArray[np.int64] = np.zeros(3, dtype=np.int64)
        self._first_row = 0
        # Bytes a token of the densest row and its number, with values of 2 bytes and of 4.
        self._densest = {2: (0, 0), 4: (0, 0)}
        self._waiting: list[NDArray[np.int64]] = []

    def begin(self) -> None:
        """Make the arrays, in case that no row has images."""
        self._building.append(IMAGE_FLAGS, np.zeros(0, dtype=np.int8))
        self._building.append(IMAGE_ROWS, np.zeros(0, dtype=np.int64))

    def add(self, piece: Piece, found: NDArray[np.int64], first_row: int) -> None:
        """Count the rows of a piece that begins at `first_row` of the store; `found` as in `PieceIndex.images`."""
        flags = np.zeros(len(piece), dtype=np.int8)
        flags[found[:, 0]] = 1
        self._building.append(IMAGE_FLAGS, flags)
        if piece.images is None or not len(found):
            return
        self.patch_values = self.patch_values or piece.images.patch_values()
        if piece.images.pixel_values.values.value_type != "float16":
            self._pixel_bytes = 4
        rows = found[:, 0] + first_row
        if not self._sums[0]:
            self._first_row = int(rows[0])
        self._sums += (len(found), found[:, 1].sum(), found[:, 2].sum())
        self.decoded_bytes += int((found[:, 2] * self.patch_values * 4 + found[:, 1] * GRID_BYTES).sum())
        lengths = np.maximum(piece.input_ids.lengths[found[:, 0]], 1)
        for width, (most, _) in self._densest.items():
            served = found[:, 2] * self.patch_values * width + found[:, 1] * GRID_BYTES + _COUNT_BYTES
            densities = -(-served // lengths)
            if densities.max() > most:
                self._densest[width] = (int(densities.max()), int(rows[densities.argmax()]))
        self._waiting.append(np.concatenate([rows[:, None], found[:, 1:]], axis=1))

    def place(self, grids_at: int, pixels_at: int) -> None:
        """Write the rows added since the last call; their columns' values begin at these elements of the file."""
        for entries in self._waiting:
            self._building.append(IMAGE_ROWS, entries + np.array([0, 0, 0, grids_at, pixels_at]))
        self._waiting.clear()

    def figures(self) -> ImageFigures | None:
        """What all rows sum up to; None, and no arrays, where none has images."""
        rows, images, patches = self._sums.tolist()
        if not rows:
            self._building.drop(IMAGE_FLAGS)
            self._building.drop(IMAGE_ROWS)
            return None
        bytes_per_token, densest_row = self._densest[self._pixel_bytes]
        return ImageFigures(
            rows=rows,
            first_row=self._first_row,
            images=images,
            patches=patches,
            patch_values=self.patch_values,
            pixel_bytes=self._pixel_bytes,
            bytes_per_token=bytes_per_token,
            densest_row=densest_row,
        )
