"""Arrow list columns as numpy arrays, for every layout that Arrow has.

    list, large_list          offsets[n + 1] over values; a slice keeps the parent's offsets
    fixed_size_list           no offsets; row r begins at (slice offset + r) * size
    list_view, large_list_view offsets[n] and sizes[n], in any order, may overlap

Starts and lengths are 64-bit whatever the file has. Dictionary-encoded, run-end-encoded and
nested values are refused by type name; extension types are read by their storage.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataserver.errors import StoreRefusedError

# The type stubs know neither `values` and `storage` of arrays in general, nor that a buffer is one.
ArrowArray: TypeAlias = Any
ArrowBuffer: TypeAlias = Any

VALUE_TYPES: dict[Any, str] = {
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.uint8(): "uint8",
    pa.uint16(): "uint16",
    pa.uint32(): "uint32",
    pa.uint64(): "uint64",
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.bool_(): "bool",
    pa.null(): "null",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ragged:
    """n rows over one flat child array.

    `starts`, `lengths`: int64[n], elements of `child`. `null_rows`: bool[n], or None where no
    row is null. `value_type`: a numpy dtype name, `bool` or `null`.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    child: ArrowArray
    value_type: str
    null_rows: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self, begin: int, end: int) -> "Ragged":
        """Rows `begin` up to `end`, over the same child."""
        return Ragged(
            starts=self.starts[begin:end],
            lengths=self.lengths[begin:end],
            child=self.child,
            value_type=self.value_type,
            null_rows=None if self.null_rows is None else self.null_rows[begin:end],
        )

    def flat(self) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """The values of all rows end to end, and which of them are null (None: none is).

        A view of the child where the rows lie end to end in it, a copy where they do not.
        """
        total = int(self.lengths.sum())
        if total == 0:
            return np.zeros(0, dtype=np.int8), None
        ends = self.starts + self.lengths
        if np.array_equal(self.starts[1:], ends[:-1]):
            return _values(self.child, self.value_type, int(self.starts[0]), int(ends[-1]))
        low, high = int(self.starts.min()), int(ends.max())
        values, nulls = _values(self.child, self.value_type, low, high)
        bounds = np.cumsum(self.lengths) - self.lengths
        index = np.repeat(self.starts - low - bounds, self.lengths) + np.arange(total)
        return values[index], None if nulls is None else nulls[index]


def ragged(array: ArrowArray, *, shard: str, column: str) -> Ragged:
    """View the Arrow list array `array` as rows; raise `StoreRefusedError` for other types."""
    declared = array.type
    array = storage_of(array)
    starts, lengths, child = spans_of(array, shard, column)
    child = storage_of(child)
    value_type = VALUE_TYPES.get(child.type)
    if value_type is None:
        raise type_refusal(declared, shard=shard, column=column)
    check_inside(starts, lengths, len(child), shard, column)
    return Ragged(starts=starts, lengths=lengths, child=child, value_type=value_type, null_rows=null_rows_of(array))


def row_at(ends: NDArray[np.int64], value: int) -> int:
    """The row in which the flat position `value` lies, by the rows' ends."""
    return int(np.searchsorted(ends, value, side="right"))


def null_rows_of(array: ArrowArray) -> NDArray[np.bool_] | None:
    """Which rows are null, bool[n]; None where none is."""
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_) if array.null_count else None


def is_list(kind: pa.DataType) -> bool:
    """Whether `spans_of` reads it."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def storage_of(array: ArrowArray) -> ArrowArray:
    """The array under any extension types."""
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return array


def spans_of(array: ArrowArray, shard: str, column: str) -> tuple[NDArray[np.int64], NDArray[np.int64], ArrowArray]:
    """Starts, lengths and child of any list layout. `values` ignores the slice's offset, and so do the offsets."""
    rows, skipped, kind = len(array), array.offset, array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        width = "int32" if pa.types.is_list(kind) else "int64"
        offsets = _fixed_width(array.buffers()[1], width, skipped, rows + 1 if rows else 0).astype(np.int64)
        return offsets[:-1], np.diff(offsets), array.values
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        starts = (skipped + np.arange(rows, dtype=np.int64)) * size
        return starts, np.full(rows, size, dtype=np.int64), array.values
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        width = "int32" if pa.types.is_list_view(kind) else "int64"
        offsets = _fixed_width(array.buffers()[1], width, skipped, rows).astype(np.int64)
        sizes = _fixed_width(array.buffers()[2], width, skipped, rows).astype(np.int64)
        return offsets, sizes, array.values
    raise type_refusal(kind, shard=shard, column=column)


def _fixed_width(buffer: ArrowBuffer | None, dtype: str, skipped: int, count: int) -> NDArray[Any]:
    if count == 0 or buffer is None:
        return np.zeros(count, dtype=dtype)
    found: NDArray[Any] = np.frombuffer(buffer, dtype=dtype, count=count, offset=skipped * np.dtype(dtype).itemsize)
    return found


def _values(child: ArrowArray, value_type: str, begin: int, end: int) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    part = child.slice(begin, end - begin)
    if value_type == "null":
        return np.zeros(end - begin, dtype=np.int8), np.ones(end - begin, dtype=np.bool_)
    nulls = None
    if part.null_count:
        nulls = np.asarray(part.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)
    if value_type == "bool":
        return _unpack_bits(np.frombuffer(part.buffers()[1], dtype=np.uint8), part.offset, end - begin), nulls
    return _fixed_width(part.buffers()[1], value_type, part.offset, end - begin), nulls


def _unpack_bits(packed: NDArray[np.uint8], begin: int, count: int) -> NDArray[np.uint8]:
    """`count` bits of an Arrow bitmap from bit `begin` on, as uint8 0/1."""
    first = begin // 8
    bits = np.unpackbits(packed[first : (begin + count + 7) // 8], bitorder="little")
    return bits[begin - first * 8 : begin - first * 8 + count]


def check_inside(starts: NDArray[np.int64], lengths: NDArray[np.int64], size: int, shard: str, column: str) -> None:
    """Offsets come from a file: one that points out of its values must not be followed."""
    if len(starts) and (lengths.min() < 0 or starts.min() < 0 or (starts + lengths).max() > size):
        raise StoreRefusedError(
            f"Shard '{shard}': the list offsets of column '{column}' point outside of its values. The file is damaged.",
            shard=shard,
            column=column,
        )


def type_refusal(kind: object, *, shard: str, column: str, wanted: str = "a list of integers") -> StoreRefusedError:
    """The error for a column whose Arrow type `kind` is not read; `wanted`: what is."""
    return StoreRefusedError(
        f"Shard '{shard}': column '{column}' has the type {kind}, which is not read. "
        f"Write it as {wanted} (list, large_list, fixed_size_list or list_view).",
        shard=shard,
        column=column,
    )
