"""The rules for rows with images, checked vectorised like those for tokens.

A row has `t * h * w` patches an image, all images of a row end to end, as the processors of Qwen2-VL and its
successors write them: `pixel_values` [patches, values of a patch] and `image_grid_thw` [images, 3].
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.faults import Fault, at_first_row, at_first_value, largest_float32
from dataserver.stores.nested import Nested
from dataserver.stores.ragged import Ragged
from dataserver.stores.schema import IMAGE_GRID_THW, PIXEL_VALUES

# Patches along one side; a product of three stays far below 2^63.
MOST_PATCHES_OF_A_SIDE: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageColumns:
    """The image columns of some rows."""

    pixel_values: Nested
    image_grid_thw: Nested

    @property
    def rows_with_images(self) -> NDArray[np.int64]:
        """Rows that have images, int64[i], ascending."""
        return np.flatnonzero(self.pixel_values.filled)

    def rows(self, begin: int, end: int) -> "ImageColumns":
        """Rows `begin` up to `end`."""
        return ImageColumns(
            pixel_values=self.pixel_values.rows(begin, end), image_grid_thw=self.image_grid_thw.rows(begin, end)
        )

    def patches(self) -> NDArray[np.int64]:
        """Patches that the grids of each row promise, int64[n]; only where every grid is legal."""
        grid = _grids(self.image_grid_thw).prod(axis=1)
        sums = np.concatenate(([0], np.cumsum(grid)))
        ends = np.cumsum(self.image_grid_thw.values.lengths // 3)
        found: NDArray[np.int64] = sums[ends] - sums[ends - self.image_grid_thw.values.lengths // 3]
        return found

    def patch_values(self) -> int:
        """Values of a patch of the first row with images; only where all rows are legal, 0 where none has images."""
        rows = self.rows_with_images
        if not len(rows):
            return 0
        return int(self.pixel_values.values.lengths[rows[0]] // self.patches()[rows[0]])


def image_faults(columns: ImageColumns, patch_values: int) -> Iterator[Fault]:
    """What rows break; `patch_values`: those of the rows before, 0 where there were none."""
    pixels, grids = columns.pixel_values, columns.image_grid_thw
    lone = pixels.filled != grids.filled
    text = "Row {row}: VLM rows must carry both ('pixel_values', 'image_grid_thw'), found only one."
    yield from at_first_row(lone, PIXEL_VALUES, text)
    faults = list(_grid_faults(grids))
    yield from faults
    if not faults and not lone.any():
        yield from _shape_faults(columns, patch_values)
    yield from _value_faults(pixels.values)


def _grid_faults(grids: Nested) -> Iterator[Fault]:
    broken = grids.uneven | (grids.values.lengths % 3 != 0)
    if grids.widths is not None:
        broken |= grids.filled & (grids.widths != 3)
    yield from at_first_row(
        broken, IMAGE_GRID_THW, "Row {row}: image_grid_thw must hold three numbers an image: t, h, w in patches."
    )
    flat, nulls = grids.values.flat()
    wrong = ~((flat >= 1) & (flat <= MOST_PATCHES_OF_A_SIDE) & (flat == np.floor(flat)))
    wrong = wrong if nulls is None else wrong | nulls
    yield from _at_value(
        wrong, nulls, grids.values, IMAGE_GRID_THW,
        lambda at: f"Row {{row}}: image_grid_thw holds {flat[at]}; t, h and w are whole numbers "
        f"from 1 to {MOST_PATCHES_OF_A_SIDE}.",
    )  # fmt: skip


def _shape_faults(columns: ImageColumns, patch_values: int) -> Iterator[Fault]:
    """How many patches, and how wide; the grids are legal."""
    pixels, patches = columns.pixel_values, columns.patches()
    lengths = pixels.values.lengths
    text = "Row {row}: the patches of pixel_values are lists of different lengths, or null."
    yield from at_first_row(pixels.uneven, PIXEL_VALUES, text)
    found, unit = (lengths, "values") if pixels.lists is None else (pixels.lists, "patches")
    differing = pixels.filled & ((lengths % np.maximum(patches, 1) != 0) if pixels.lists is None else found != patches)
    yield from at_first_row(
        differing, PIXEL_VALUES,
        lambda row: f"Row {{row}}: pixel_values has {found[row]} {unit}, but "
        f"image_grid_thw promises {patches[row]} patches (the sum of t * h * w).",
    )  # fmt: skip
    widths = lengths // np.maximum(patches, 1)
    rows = columns.rows_with_images
    expected = patch_values or (int(widths[rows[0]]) if len(rows) else 0)
    yield from at_first_row(
        pixels.filled & (widths != expected), PIXEL_VALUES,
        lambda row: f"Row {{row}}: pixel_values has {widths[row]} values a patch where rows before have {expected}.",
    )  # fmt: skip


def _value_faults(pixels: Ragged) -> Iterator[Fault]:
    flat, nulls = pixels.flat()
    most = largest_float32(flat.dtype)
    # The extremes are NaN where one value is, and then not within anything.
    if nulls is None and (len(flat) == 0 or (flat.min() >= -most and flat.max() <= most)):
        return
    wrong = ~((flat >= -most) & (flat <= most))
    wrong = wrong if nulls is None else wrong | nulls
    yield from _at_value(
        wrong, nulls, pixels, PIXEL_VALUES,
        lambda at: f"Row {{row}}: pixel_values holds {flat[at]}; every value is finite, as float32 too.",
    )  # fmt: skip


def _at_value(
    wrong: NDArray[np.bool_],
    nulls: NDArray[np.bool_] | None,
    values: Ragged,
    column: str,
    text: Callable[[int], str],
) -> Iterator[Fault]:
    def worded(at: int) -> str:
        return f"Row {{row}}: {column} holds a null." if nulls is not None and nulls[at] else text(at)

    yield from at_first_value(wrong, np.cumsum(values.lengths), column, worded)


def _grids(grids: Nested) -> NDArray[np.int64]:
    """int64[k, 3]."""
    flat, _ = grids.values.flat()
    return flat.astype(np.int64).reshape(-1, 3)
