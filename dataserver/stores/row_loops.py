"""The loops of `row_copy`, as machine code.

Each returns the number of the first row that it would have to leave an array for, and has done nothing then; or -1.
`begins`, `lengths`, `at`: int64[n], of row i: where it lies, how long it is, and where it goes.
"""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataserver.compiled import compiled
from dataserver.compiled.instructions import BLOCK_BYTES, copy_block, copy_bytes, copy_from, fetch_ahead

Counts: TypeAlias = NDArray[np.int64]

# Rows that are loaded ahead, and how much of each: behind that the processor goes on by itself, and more than it can
# wait for at a time would hold it up.
_ROWS_AHEAD: Final = 8
_BYTES_AHEAD: Final = 512
_LINE_BYTES: Final = 64


@compiled
def is_outside(begin: int, length: int, size: int, to: int, room: int) -> bool:
    """Whether a row is not within both arrays."""
    return length < 0 or begin < 0 or begin > size - length or to < 0 or to > room - length


@compiled
def first_outside(begins: Counts, lengths: Counts, size: int, at: Counts, room: int) -> int:
    """The first row that is not within both arrays; -1: all are."""
    for i in range(len(begins)):
        if is_outside(begins[i], lengths[i], size, at[i], room):
            return i
    return -1


@compiled
def copy_row(out: NDArray[np.uint8], at: int, values: NDArray[np.uint8], begin: int, count: int) -> None:
    """Copy bytes, which lie within both arrays, and these apart.

    In blocks from the first to the last byte: memcpy loads a row's end first, where the processor cannot see yet
    that it is a row, and costs a third more out of memory. The last block covers again what is left of the one before.
    """
    if count < BLOCK_BYTES:
        copy_bytes(out, at, values, begin, count)
        return
    last = count - BLOCK_BYTES
    for done in range(0, last, BLOCK_BYTES):
        copy_block(out, at + done, values, begin + done)
    copy_block(out, at + last, values, begin + last)


@compiled
def copy_same(  # noqa: PLR0917
    values: NDArray[np.uint8],
    begins: Counts,
    lengths: Counts,
    out: NDArray[np.uint8],
    at: Counts,
    width: int,
) -> int:
    """Copy numbers that are `width` bytes wide, which `begins`, `lengths` and `at` count."""
    outside = first_outside(begins, lengths, len(values) // width, at, len(out) // width)
    if outside >= 0:
        return outside
    count = len(begins)
    for i in range(-_ROWS_AHEAD, count):
        following = i + _ROWS_AHEAD
        if following < count:
            first = begins[following] * width
            for near in range(first, first + min(lengths[following] * width, _BYTES_AHEAD), _LINE_BYTES):
                fetch_ahead(values, near)
        if i >= 0:
            copy_row(out, at[i] * width, values, begins[i] * width, lengths[i] * width)
    return -1


@compiled
def copy_scattered(  # noqa: PLR0917
    addresses: Counts,
    sizes: Counts,
    which: Counts,
    begins: Counts,
    lengths: Counts,
    out: NDArray[np.uint8],
    at: Counts,
    width: int,
) -> int:
    """`copy_same` out of several arrays: row i lies in array `which[i]`, of `sizes[which[i]]` numbers."""
    room = len(out) // width
    for i in range(len(begins)):
        if is_outside(begins[i], lengths[i], sizes[which[i]], at[i], room):
            return i
    for i in range(len(begins)):
        copy_from(out, at[i] * width, addresses[which[i]] + begins[i] * width, lengths[i] * width)
    return -1


@compiled
def copy_converted(
    values: NDArray[Any],
    begins: Counts,
    lengths: Counts,
    out: NDArray[Any],
    at: Counts,
) -> int:
    """Copy numbers into another dtype."""
    outside = first_outside(begins, lengths, len(values), at, len(out))
    if outside >= 0:
        return outside
    for i in range(len(begins)):
        source, target = values[begins[i] : begins[i] + lengths[i]], out[at[i] : at[i] + lengths[i]]
        for j in range(len(source)):
            target[j] = source[j]
    return -1


@compiled
def copy_bits(
    packed: NDArray[np.uint8],
    begins: Counts,
    lengths: Counts,
    out: NDArray[np.uint8],
    at: Counts,
) -> int:
    """Copy bits, which `begins` counts, as bytes 0 and 1."""
    outside = first_outside(begins, lengths, len(packed) * 8, at, len(out))
    if outside >= 0:
        return outside
    for i in range(len(begins)):
        target = out[at[i] : at[i] + lengths[i]]
        for j in range(len(target)):
            bit = begins[i] + j
            target[j] = packed[bit >> 3] >> (bit & 7) & 1
    return -1


@compiled
def fill(value: Any, lengths: Counts, out: NDArray[Any], at: Counts) -> int:  # noqa: ANN401
    """Set rows to one value."""
    outside = first_outside(at, lengths, len(out), at, len(out))
    if outside >= 0:
        return outside
    for i in range(len(at)):
        out[at[i] : at[i] + lengths[i]] = value
    return -1


@compiled
def locate(  # noqa: PLR0917
    rows: Counts,
    row_begins: Counts,
    offsets: NDArray[Any],
    offsets_at: Counts,
    values_at: Counts,
    begins: Counts,
) -> int:
    """Fill `begins` with where the values of `rows` begin; see `row_copy.locate_rows`."""
    for i in range(len(rows)):
        row = rows[i]
        if row < 0 or row >= row_begins[-1]:
            return i
        block = np.searchsorted(row_begins, row, side="right") - 1
        entry = offsets_at[block] + row - row_begins[block]
        if entry < 0 or entry >= len(offsets):
            return i
        begins[i] = values_at[block] + offsets[entry]
    return -1


@compiled
def locate_even(
    rows: Counts,
    row_begins: Counts,
    size: int,
    values_at: Counts,
    begins: Counts,
) -> int:
    """`locate` where each row has `size` values."""
    for i in range(len(rows)):
        row = rows[i]
        if row < 0 or row >= row_begins[-1]:
            return i
        block = np.searchsorted(row_begins, row, side="right") - 1
        begins[i] = values_at[block] + (row - row_begins[block]) * size
    return -1
