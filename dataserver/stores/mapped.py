"""Rows of uncompressed Arrow shards, straight from their mapped bytes.

Positions come from the index, so that serving needs neither pyarrow nor a copy; resident memory
is the page cache.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.image_table import ImageTable
from dataserver.stores.manifest import ColumnLayout, ShardLayout
from dataserver.stores.schema import INPUT_IDS, LOSS_MASK, LOSS_WEIGHT
from dataserver.stores.slices import Buffer, Slices, Wanted, cut, cut_bits, repeated
from dataserver.stores.tables import Blocks

# Block of each row, its number in it, its length, and the value at which to begin (None: the first), int64[n] each.
_Place: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None]"


class MappedReader:
    """Reads neighbouring shards, mapped as `data`, in which `blocks` count; see `slices.ShardReader`.

    `images`: their rows that have any, whose places count in `data` too.
    """

    def __init__(
        self, data: memoryview, layout: ShardLayout, blocks: Blocks, images: ImageTable, patch_values: int
    ) -> None:
        self._blocks = blocks
        self._input_ids = _Column(data, layout.input_ids, blocks, INPUT_IDS)
        self._loss_mask, self._loss_weight = (
            None if found is None else _Column(data, found, blocks, name)
            for name, found in ((LOSS_MASK, layout.loss_mask), (LOSS_WEIGHT, layout.loss_weight))
        )
        self._images = images
        self._patch_values = patch_values
        self._grids: NDArray[Any] | None = None
        self._pixels: NDArray[Any] | None = None
        if layout.images is not None:
            self._grids = _view(data, layout.images.image_grid_thw)
            self._pixels = _view(data, layout.images.pixel_values)

    def read(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        wanted: Wanted,
        *,
        offsets: NDArray[np.int64] | None,
    ) -> Slices:
        """See `slices.ShardReader`."""
        blocks = self._blocks.of(rows)
        within = rows - self._blocks.row_begins[blocks]
        place = (blocks, within, lengths, offsets)
        loss_mask: list[Buffer] = []
        if wanted.mask:
            loss_mask = repeated(b"\x01", lengths) if self._loss_mask is None else self._loss_mask.read(place, "u1")
        grids: list[Buffer] = []
        pixels: list[Buffer] = []
        if wanted.pixel_bytes and self._grids is not None and self._pixels is not None:
            grids, pixels = self._images.cut(
                rows, self._grids, self._pixels, patch_values=self._patch_values, pixel_bytes=wanted.pixel_bytes
            )
        return Slices(
            tokens=self._input_ids.read(place, f"<u{wanted.token_bytes}") if wanted.token_bytes else [],
            loss_mask=loss_mask,
            loss_weight=self._loss_weight.read(place, "<f4")
            if wanted.weights and self._loss_weight is not None
            else [],
            grids=grids,
            pixels=pixels,
        )


class _Column:
    """One column: views of all bytes in the dtypes of its offsets and of its values."""

    def __init__(self, data: memoryview, layout: ColumnLayout, blocks: Blocks, name: str) -> None:
        self._size = layout.size
        self._is_bits = layout.values == "bool"
        self._values_at = blocks.field(f"{name}_values")
        self._offsets_at = blocks.field(f"{name}_offsets")
        self._offsets = None if layout.offsets == "fixed" else _view(data, layout.offsets)
        self._values = _view(data, "uint8" if self._is_bits else layout.values)

    def read(self, place: _Place, kind: str) -> list[Buffer]:
        """The values as numbers of the dtype `kind`."""
        blocks, within, lengths, offsets = place
        if self._offsets is None:
            begins = within * self._size
        else:
            begins = self._offsets[self._offsets_at[blocks] + within].astype(np.int64)
        begins += self._values_at[blocks]
        if offsets is not None:
            begins += offsets
        return cut_bits(self._values, begins, lengths) if self._is_bits else cut(self._values, begins, lengths, kind)


def _view(data: memoryview, dtype: str) -> NDArray[Any]:
    """All bytes as numbers; bytes at the end that fill no number are no part of any column."""
    return np.frombuffer(data, dtype=dtype, count=len(data) // np.dtype(dtype).itemsize)
