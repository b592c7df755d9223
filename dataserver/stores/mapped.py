"""Rows of uncompressed Arrow shards, straight from their mapped bytes.

Positions come from the index, so that serving needs neither pyarrow nor a copy; resident memory
is the page cache.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.manifest import ColumnLayout, ShardLayout
from dataserver.stores.schema import INPUT_IDS, LOSS_MASK
from dataserver.stores.slices import Buffer, Slices, cut, cut_bits, ones
from dataserver.stores.tables import Blocks


class MappedReader:
    """Reads neighbouring shards, mapped as `data`, in which `blocks` count; see `slices.ShardReader`."""

    def __init__(self, data: memoryview, layout: ShardLayout, blocks: Blocks) -> None:
        self._blocks = blocks
        self._input_ids = _Column(data, layout.input_ids, blocks, INPUT_IDS)
        self._loss_mask = None
        if layout.loss_mask is not None:
            self._loss_mask = _Column(data, layout.loss_mask, blocks, LOSS_MASK)

    def read(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        token_bytes: int,
        *,
        mask: bool,
        offsets: NDArray[np.int64] | None,
    ) -> Slices:
        """See `slices.ShardReader`."""
        blocks = self._blocks.of(rows)
        within = rows - self._blocks.row_begins[blocks]
        tokens = self._input_ids.read(blocks, within, lengths, token_bytes, offsets) if token_bytes else []
        if not mask:
            return Slices(tokens=tokens, loss_mask=[])
        if self._loss_mask is None:
            return Slices(tokens=tokens, loss_mask=ones(lengths))
        return Slices(tokens=tokens, loss_mask=self._loss_mask.read(blocks, within, lengths, 1, offsets))


class _Column:
    """One column: views of all bytes in the dtypes of its offsets and of its values."""

    def __init__(self, data: memoryview, layout: ColumnLayout, blocks: Blocks, name: str) -> None:
        self._size = layout.size
        self._is_bits = layout.values == "bool"
        self._values_at = blocks.field(f"{name}_values")
        self._offsets_at = blocks.field(f"{name}_offsets")
        self._offsets = None if layout.offsets == "fixed" else _view(data, layout.offsets)
        self._values = _view(data, "uint8" if self._is_bits else layout.values)

    def read(
        self,
        blocks: NDArray[np.int64],
        within: NDArray[np.int64],
        lengths: NDArray[np.int64],
        itemsize: int,
        offsets: NDArray[np.int64] | None,
    ) -> list[Buffer]:
        """The rows `within[i]` of `blocks[i]`."""
        if self._offsets is None:
            begins = within * self._size
        else:
            begins = self._offsets[self._offsets_at[blocks] + within].astype(np.int64)
        begins += self._values_at[blocks]
        if offsets is not None:
            begins += offsets
        return (
            cut_bits(self._values, begins, lengths) if self._is_bits else cut(self._values, begins, lengths, itemsize)
        )


def _view(data: memoryview, dtype: str) -> NDArray[Any]:
    """All bytes as numbers; bytes at the end that fill no number are no part of any column."""
    return np.frombuffer(data, dtype=dtype, count=len(data) // np.dtype(dtype).itemsize)
