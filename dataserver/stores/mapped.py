"""Rows of uncompressed Arrow shards, straight from their mapped bytes.

Positions come from the index, so that serving needs neither pyarrow nor a copy; resident memory
is the page cache.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.destination import Destination
from dataserver.stores.image_table import ImageTable
from dataserver.stores.manifest import ColumnLayout, ShardLayout
from dataserver.stores.row_copy import copy_bits, copy_rows, fill_rows, locate_rows
from dataserver.stores.schema import INPUT_IDS, LOSS_MASK, LOSS_WEIGHT
from dataserver.stores.tables import Blocks


class MappedReader:
    """Reads neighbouring shards, mapped as `data`, in which `blocks` count; see `destination.ShardReader`.

    `images`: their rows that have any, whose places count in `data` too. `name`: the store's, for messages.
    """

    def __init__(
        self, data: memoryview, layout: ShardLayout, blocks: Blocks, images: ImageTable, *, patch_values: int, name: str
    ) -> None:
        columns = {INPUT_IDS: layout.input_ids, LOSS_MASK: layout.loss_mask, LOSS_WEIGHT: layout.loss_weight}
        self._columns = {
            column: _Column(data, found, blocks, column, f"'{name}', column {column}")
            for column, found in columns.items()
            if found is not None
        }
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
        into: Destination,
        numbers: NDArray[np.int64] | None,
        *,
        offsets: NDArray[np.int64] | None,
    ) -> None:
        """See `destination.ShardReader`. Images are views."""
        at = into.at(numbers)
        wanted = {INPUT_IDS: into.tokens, LOSS_MASK: into.loss_mask, LOSS_WEIGHT: into.loss_weight}
        for name, out in wanted.items():
            column = self._columns.get(name)
            if out is not None and column is not None:
                column.read(rows, lengths, offsets, out, at)
        if into.loss_mask is not None and LOSS_MASK not in self._columns:
            fill_rows(1, lengths, into.loss_mask, at)
        if into.pixel_bytes and self._grids is not None and self._pixels is not None:
            self._images.read(
                rows, into, numbers, grids=self._grids, pixels=self._pixels, patch_values=self._patch_values
            )


class _Column:
    """One column: views of all bytes in the dtypes of its offsets and of its values. `what`: it, in messages."""

    def __init__(self, data: memoryview, layout: ColumnLayout, blocks: Blocks, name: str, what: str) -> None:
        self._size = layout.size
        self._is_bits = layout.values == "bool"
        self._row_begins = blocks.row_begins
        self._values_at = blocks.field(f"{name}_values").copy()
        self._offsets_at = blocks.field(f"{name}_offsets").copy()
        self._offsets = None if layout.offsets == "fixed" else _view(data, layout.offsets)
        self._values = _view(data, "uint8" if self._is_bits else layout.values)
        self._what = what

    def read(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        offsets: NDArray[np.int64] | None,
        out: NDArray[Any],
        at: NDArray[np.int64],
    ) -> None:
        """Copy the values of rows to `out`, in its dtype."""
        begins = locate_rows(
            rows,
            self._row_begins,
            self._offsets,
            self._offsets_at,
            self._values_at,
            size=self._size,
            what=self._what,
        )
        if offsets is not None:
            begins += offsets
        copy = copy_bits if self._is_bits else copy_rows
        copy(self._values, begins, lengths, out, at, what=self._what)


def _view(data: memoryview, dtype: str) -> NDArray[Any]:
    """All bytes as numbers; bytes at the end that fill no number are no part of any column."""
    return np.frombuffer(data, dtype=dtype, count=len(data) // np.dtype(dtype).itemsize)
