"""Where a list column lies in a mapped Arrow file, so that rows are read with numpy alone.

    row r of a block ──> start = offsets[offsets_at + r] + values_at ──> values[start : start + length]
                         start = r * size + values_at                    (fixed_size_list)

Both positions count elements of a view of the whole file in the column's own dtype (bits where
the values are `bool`). Lengths are not needed: the index has them.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataserver.stores.manifest import ColumnLayout
from dataserver.stores.ragged import VALUE_TYPES, ArrowArray, ArrowBuffer, storage_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one block of a column begins."""

    layout: ColumnLayout
    offsets_at: int
    values_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedFile:
    """A mapped file: the memory address of its first byte, and its size."""

    address: int
    size: int

    def element(self, buffer: ArrowBuffer, width: int) -> int | None:
        """Which element of `width` bytes the buffer begins with; None if it lies elsewhere or askew."""
        begin = buffer.address - self.address
        inside = begin >= 0 and begin + buffer.size <= self.size
        return int(begin // width) if inside and begin % width == 0 else None


def place(column: ArrowArray, file: MappedFile) -> Placement | None:
    """Find the list array `column` (any layout, n > 0 rows) in `file`; None if it is not there as it is.

    Compressed and byte-swapped columns are elsewhere in memory: those are decoded.
    """
    array = storage_of(column)
    child = storage_of(array.values)
    offsets, offsets_at, skipped_values = "fixed", 0, 0
    size = 0
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        skipped_values = array.offset * size
    else:
        offsets = "int64" if _has_wide_offsets(array.type) else "int32"
        found = file.element(array.buffers()[1], np.dtype(offsets).itemsize)
        if found is None:
            return None
        offsets_at = found + array.offset
    values_at = _values_at(child, file)
    if values_at is None:
        return None
    layout = ColumnLayout(offsets=offsets, size=size, values=_file_type(child))
    return Placement(layout=layout, offsets_at=offsets_at, values_at=values_at + skipped_values)


def _has_wide_offsets(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind))


def _file_type(child: ArrowArray) -> str:
    """The dtype of the values; a column of only [] may have the value type null, and then has none."""
    found = VALUE_TYPES[child.type]
    return "uint8" if found == "null" else found


def _values_at(child: ArrowArray, file: MappedFile) -> int | None:
    if len(child) == 0:
        return 0
    buffer = child.buffers()[1]
    if child.type == pa.bool_():
        byte = file.element(buffer, 1)
        return None if byte is None else byte * 8 + int(child.offset)
    element = file.element(buffer, np.dtype(VALUE_TYPES[child.type]).itemsize)
    return None if element is None else element + int(child.offset)
