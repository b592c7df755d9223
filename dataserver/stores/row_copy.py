"""Rows copied from where they lie to where they are wanted: the inner loop of serving.

    values  ....[row 7  ]....[row 2 ]....[row 9     ]      begins, lengths: where each row lies
    out     [row 2 ][row 7  ]..[row 9     ]........        at: where it goes; what no row covers is left as it is

Both ends are checked before anything is copied: what is in a file never moves a copy out of an array. Rows that are as
wide as they are wanted are copied by memcpy, while the processor loads the next ones: rows in shuffled order would
else each begin with waiting for memory.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InternalError, StoreDamagedError
from dataserver.stores import row_loops

# int64[n].
Counts: TypeAlias = NDArray[np.int64]

# Kinds of two integers.
_INTEGERS: Final = frozenset(("ii", "iu", "ui", "uu"))


def copy_rows(
    values: NDArray[Any],
    begins: Counts,
    lengths: Counts,
    out: NDArray[Any],
    at: Counts,
    *,
    what: str,
) -> None:
    """For each i copy `values[begins[i]:]` to `out[at[i]:]`, `lengths[i]` numbers, converted to the dtype of `out`.

    Integers as wide as each other are copied as they are, whatever their sign. Raises `StoreDamagedError`, which begins
    with `what`, for a row that would lie outside of `values`; nothing is copied then.
    """
    kinds = values.dtype.kind + out.dtype.kind
    if values.dtype == out.dtype or (values.itemsize == out.itemsize and kinds in _INTEGERS):
        outside = row_loops.copy_same(_read_only(values), begins, lengths, out.view(np.uint8), at, values.itemsize)
    elif values.dtype == np.float16:
        # Numba knows no half precision.
        outside = row_loops.first_outside(begins, lengths, len(values), at, len(out))
        if outside < 0:
            for begin, length, to in zip(begins.tolist(), lengths.tolist(), at.tolist(), strict=True):
                out[to : to + length] = values[begin : begin + length]
    else:
        outside = row_loops.copy_converted(values, begins, lengths, out, at)
    if outside >= 0:
        raise _error(outside, what=what, begins=begins, lengths=lengths, at=at, size=len(values), room=len(out))


def copy_rows_of(  # noqa: PLR0917
    arrays: Sequence[NDArray[Any]],
    which: Counts,
    begins: Counts,
    lengths: Counts,
    out: NDArray[Any],
    at: Counts,
    *,
    what: str,
) -> None:
    """`copy_rows` out of several arrays of one dtype: row i lies in `arrays[which[i]]`.

    Where that is not the dtype of `out`, one array is checked and copied after the other.
    """
    if len(arrays) == 1 or arrays[0].dtype != out.dtype:
        for number, values in enumerate(arrays):
            mine = np.flatnonzero(which == number)
            copy_rows(values, begins[mine], lengths[mine], out, at[mine], what=what)
        return
    addresses = np.array([values.__array_interface__["data"][0] for values in arrays], dtype=np.int64)
    sizes = np.array([len(values) for values in arrays])
    outside = row_loops.copy_scattered(
        addresses, sizes, which, begins, lengths, out.view(np.uint8), at, out.dtype.itemsize
    )
    if outside >= 0:
        size = int(sizes[which[outside]])
        raise _error(outside, what=what, begins=begins, lengths=lengths, at=at, size=size, room=len(out))


def copy_bits(
    packed: NDArray[np.uint8],
    begins: Counts,
    lengths: Counts,
    out: NDArray[np.uint8],
    at: Counts,
    *,
    what: str,
) -> None:
    """`copy_rows` out of an Arrow bitmap, as 0 and 1; `begins` count bits."""
    outside = row_loops.copy_bits(packed, begins, lengths, out, at)
    if outside >= 0:
        raise _error(outside, what=what, begins=begins, lengths=lengths, at=at, size=len(packed) * 8, room=len(out))


def fill_rows(value: float, lengths: Counts, out: NDArray[Any], at: Counts) -> None:
    """Set `out[at[i]:]` to `value`, `lengths[i]` times, for each i."""
    outside = row_loops.fill(out.dtype.type(value), lengths, out, at)
    if outside >= 0:
        raise _error(outside, what="", begins=at, lengths=lengths, at=at, size=len(out), room=len(out))


def locate_rows(
    rows: Counts,
    row_begins: Counts,
    offsets: NDArray[np.int32] | NDArray[np.int64] | None,
    offsets_at: Counts,
    values_at: Counts,
    *,
    size: int,
    what: str,
) -> Counts:
    """Where the values of each of `rows` (int64[n]) begin, int64[n]; see `layout` for how.

    Block b has the rows from `row_begins[b]` on (int64[b + 1]); its offsets and values begin at `offsets_at[b]` and
    `values_at[b]`. `offsets`: None where each row has `size` values. Raises `StoreDamagedError`, which begins with
    `what`, where the offset of a row would lie outside of `offsets`.
    """
    begins = np.empty(len(rows), dtype=np.int64)
    if offsets is None:
        outside = row_loops.locate_even(rows, row_begins, size, values_at, begins)
    else:
        outside = row_loops.locate(rows, row_begins, offsets, offsets_at, values_at, begins)
    if outside >= 0:
        raise StoreDamagedError(f"{what}: row {rows[outside]} lies outside of the file or of its index.")
    return begins


def _error(number: int, *, what: str, begins: Counts, lengths: Counts, at: Counts, size: int, room: int) -> Exception:
    """Row `number` is not within `size` values, or does not fit into a `room` of them."""
    begin, length, to = int(begins[number]), int(lengths[number]), int(at[number])
    if length >= 0 and to >= 0 and to + length <= room:
        return StoreDamagedError(
            f"{what}: {length} values from {begin} on are not among its {size}. The file or its index is not what was "
            "admitted."
        )
    return InternalError(f"{length} values do not fit at {to} of {room}")


def _read_only(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Its bytes, as one type of array, so that what copies them is compiled once."""
    found = values.view(np.uint8)
    found.flags.writeable = False
    return found
