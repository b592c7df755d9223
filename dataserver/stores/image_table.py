"""Which rows of a store have images, how large, and where their values lie: a part of the index.

Text costs nothing: a store without image rows has neither array.

    image_flags.i1   int8[rows], 1 for a row with images
    image_rows.i8    int64[i, 5] for the i rows with images, ascending (`ImageTable`)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import StoreDamagedError
from dataserver.stores.destination import Buffer, Destination

IMAGE_FLAGS = "image_flags.i1"
IMAGE_ROWS = "image_rows.i8"
IMAGE_FIELDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTable:
    """The rows with images of a store or a shard, ascending; int64[i] each.

    `rows`: their numbers. `images`, `patches`: how many of each. `grids_at`, `pixels_at`: the element of the mapped
    file, in the dtype of the column, at which the values begin; without meaning where the shard is decoded.
    """

    rows: NDArray[np.int64]
    images: NDArray[np.int64]
    patches: NDArray[np.int64]
    grids_at: NDArray[np.int64]
    pixels_at: NDArray[np.int64]

    @classmethod
    def of(cls, table: NDArray[np.int64]) -> "ImageTable":
        """From int64[i, 5]."""
        rows, images, patches, grids_at, pixels_at = table.reshape(-1, IMAGE_FIELDS).T
        return cls(rows=rows, images=images, patches=patches, grids_at=grids_at, pixels_at=pixels_at)

    def __len__(self) -> int:
        return len(self.rows)

    def within(self, begin: int, end: int) -> "ImageTable":
        """The part for rows `begin` up to `end`, which it numbers from 0."""
        part = slice(*np.searchsorted(self.rows, (begin, end)).tolist())
        return ImageTable(
            rows=self.rows[part] - begin,
            images=self.images[part],
            patches=self.patches[part],
            grids_at=self.grids_at[part],
            pixels_at=self.pixels_at[part],
        )

    def find(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of `rows` (int64[n]) have images, as indices into `rows`, and the entry of each."""
        at = np.searchsorted(self.rows, rows)
        known = np.flatnonzero(self.rows[np.minimum(at, len(self) - 1)] == rows) if len(self) else np.zeros(0, np.int64)
        return known, at[known]

    def counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Images and patches of each of `rows` (int64[n]), int64[n, 2]."""
        counts = np.zeros((len(rows), 2), dtype=np.int64)
        at, entries = self.find(rows)
        counts[at, 0], counts[at, 1] = self.images[entries], self.patches[entries]
        return counts

    def read(
        self,
        rows: NDArray[np.int64],
        into: Destination,
        numbers: NDArray[np.int64] | None,
        *,
        grids: NDArray[Any],
        pixels: NDArray[Any],
        patch_values: int,
    ) -> None:
        """Read the images of `rows` out of the arrays that `grids_at` and `pixels_at` count; see `ShardReader`.

        Views of the arrays where these are as wide as what is wanted.
        """
        known, entries = self.find(rows)
        of_rows = _cut(grids, self.grids_at[entries], 3 * self.images[entries], "<i8")
        values = _cut(pixels, self.pixels_at[entries], patch_values * self.patches[entries], f"<f{into.pixel_bytes}")
        targets = known if numbers is None else numbers[known]
        for number, grid, value in zip(targets.tolist(), of_rows, values, strict=True):
            into.grids[number], into.pixels[number] = grid, value


def _cut(values: NDArray[Any], begins: NDArray[np.int64], lengths: NDArray[np.int64], kind: str) -> list[Buffer]:
    """For each i the bytes of `values[begins[i] : begins[i] + lengths[i]]`, as numbers of the dtype `kind`."""
    ends = begins + lengths
    if len(begins) and (begins.min() < 0 or ends.max() > len(values)):
        raise StoreDamagedError("the index places an image outside of its file")
    rows = [values[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    if values.dtype == np.dtype(kind):
        return [row.view(np.uint8).data for row in rows]
    return [row.astype(kind).tobytes() for row in rows]


NO_IMAGES = ImageTable.of(np.zeros(0, dtype=np.int64))
