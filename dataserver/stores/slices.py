"""Copying rows as whole slices, and what a reader of one shard is.

Nothing here looks at single tokens. Where source and target differ in width the assignment of a
slice casts; admission has shown that the target is wide enough.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class ShardReader(Protocol):
    """Copies rows of one shard. Safe to use from several threads."""

    def copy(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        starts: NDArray[np.int64],
        tokens: NDArray[Any] | None,
        mask: NDArray[np.uint8] | None,
    ) -> None:
        """Copy the first `lengths[i]` values of shard row `rows[i]` to `starts[i]` on, into what is not None.

        Raises `StoreDamagedError` where the bytes cannot be what was admitted.
        """


def copy_slices(
    source: NDArray[Any],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    starts: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """For each i: `out[starts[i] : starts[i] + lengths[i]] = source[begins[i] : begins[i] + lengths[i]]`."""
    read: Any = source
    write: Any = out
    if source.itemsize == out.itemsize and source.dtype.kind in "iu" and out.dtype.kind in "iu":
        # Same bytes whatever the sign. Slices of a memoryview cost a third of numpy's.
        read = source.view(f"u{out.itemsize}").data
        write = out.view(f"u{out.itemsize}").data
    spans = zip(begins.tolist(), (begins + lengths).tolist(), starts.tolist(), (starts + lengths).tolist(), strict=True)
    for begin, end, start, stop in spans:
        write[start:stop] = read[begin:end]


def copy_bits(
    packed: NDArray[np.uint8],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    starts: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """`copy_slices` out of an Arrow bitmap; `begins` count bits."""
    for begin, length, start in zip(begins.tolist(), lengths.tolist(), starts.tolist(), strict=True):
        out[start : start + length] = unpack_bits(packed, begin, length)


def grouped(keys: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each distinct key, ascending, with the indices (int64[k]) at which it stands, ascending."""
    if len(keys) == 0:
        return
    if (keys == keys[0]).all():
        yield int(keys[0]), np.arange(len(keys))
        return
    order = np.argsort(keys, kind="stable")
    distinct, begins = np.unique(keys[order], return_index=True)
    yield from zip(distinct.tolist(), np.split(order, begins[1:]), strict=True)


def fill_ones(lengths: NDArray[np.int64], starts: NDArray[np.int64], out: NDArray[Any]) -> None:
    """The mask of rows whose every token is a target."""
    for start, stop in zip(starts.tolist(), (starts + lengths).tolist(), strict=True):
        out[start:stop] = 1


def unpack_bits(packed: NDArray[np.uint8], begin: int, count: int) -> NDArray[np.uint8]:
    """`count` bits of an Arrow bitmap from bit `begin` on, as uint8 0/1."""
    first = begin // 8
    bits = np.unpackbits(packed[first : (begin + count + 7) // 8], bitorder="little")
    return bits[begin - first * 8 : begin - first * 8 + count]
