"""Rows of an uncompressed Arrow shard, straight from its mapped bytes.

Positions come from the index, so that serving needs neither pyarrow nor a copy; resident memory
is the page cache.
"""

import mmap
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.manifest import ColumnLayout, ShardLayout
from dataserver.stores.schema import INPUT_IDS, LOSS_MASK
from dataserver.stores.slices import copy_bits, copy_slices, fill_ones
from dataserver.stores.tables import Blocks


class MappedReader:
    """Reads one mapped shard; see `slices.ShardReader`."""

    def __init__(self, data: mmap.mmap, layout: ShardLayout, blocks: Blocks) -> None:
        self._blocks = blocks
        self._input_ids = _Column(data, layout.input_ids, blocks, INPUT_IDS)
        self._loss_mask = None
        if layout.loss_mask is not None:
            self._loss_mask = _Column(data, layout.loss_mask, blocks, LOSS_MASK)

    @classmethod
    def open(cls, path: Path, layout: ShardLayout, blocks: Blocks) -> Self:
        """Map the file at `path`."""
        with path.open("rb") as file:
            return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), layout, blocks)

    def copy(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        starts: NDArray[np.int64],
        tokens: NDArray[Any] | None,
        mask: NDArray[np.uint8] | None,
    ) -> None:
        """See `slices.ShardReader`."""
        blocks = self._blocks.of(rows)
        within = rows - self._blocks.row_begins[blocks]
        if tokens is not None:
            self._input_ids.copy(blocks, within, lengths, starts, tokens)
        if mask is None:
            return
        if self._loss_mask is None:
            fill_ones(lengths, starts, mask)
        else:
            self._loss_mask.copy(blocks, within, lengths, starts, mask)


class _Column:
    """One column: views of the whole file in the dtypes of its offsets and of its values."""

    def __init__(self, data: mmap.mmap, layout: ColumnLayout, blocks: Blocks, name: str) -> None:
        self._size = layout.size
        self._is_bits = layout.values == "bool"
        self._values_at = blocks.field(f"{name}_values")
        self._offsets_at = blocks.field(f"{name}_offsets")
        self._offsets = None if layout.offsets == "fixed" else _view(data, layout.offsets)
        self._values = _view(data, "uint8" if self._is_bits else layout.values)

    def copy(
        self,
        blocks: NDArray[np.int64],
        within: NDArray[np.int64],
        lengths: NDArray[np.int64],
        starts: NDArray[np.int64],
        out: NDArray[Any],
    ) -> None:
        """Copy the rows `within[i]` of `blocks[i]`."""
        if self._offsets is None:
            begins = within * self._size
        else:
            begins = self._offsets[self._offsets_at[blocks] + within].astype(np.int64)
        begins += self._values_at[blocks]
        (copy_bits if self._is_bits else copy_slices)(self._values, begins, lengths, starts, out)


def _view(data: mmap.mmap, dtype: str) -> NDArray[Any]:
    """The whole file as numbers; bytes at the end that fill no number are no part of any column."""
    return np.frombuffer(data, dtype=dtype, count=len(data) // np.dtype(dtype).itemsize)
