"""Rows as slices of what holds them, and what a reader of one shard is.

    rows ──> where their values begin ──> one slice a row ──> joined once, by whoever sends them

Nothing here looks at single tokens, and nothing is copied where the store has the width that is asked for. One
`b"".join` of slices costs a third of what assigning them one by one does.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = "bytes | memoryview"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """Values of n rows, a contiguous buffer of bytes each; an empty list for what was not asked for.

    `tokens`: little-endian, as wide as was asked for. `loss_mask`: one byte 0 or 1 a token.
    """

    tokens: list[Buffer]
    loss_mask: list[Buffer]


class ShardReader(Protocol):
    """Reads rows of one shard. Safe to use from several threads."""

    def read(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        token_bytes: int,
        *,
        mask: bool,
        offsets: NDArray[np.int64] | None,
    ) -> Slices:
        """`lengths[i]` values of shard row `rows[i]`, from its value `offsets[i]` on (None: from its first).

        `token_bytes`: width of the tokens, at least the store's; 0: no tokens. `mask`: whether the mask is wanted.
        Raises `StoreDamagedError` where the bytes cannot be what was admitted.
        """


def cut(values: NDArray[Any], begins: NDArray[np.int64], lengths: NDArray[np.int64], itemsize: int) -> list[Buffer]:
    """For each i the bytes of `values[begins[i] : begins[i] + lengths[i]]`, as unsigned integers of `itemsize` bytes.

    Views where `values` are integers as wide, whatever their sign; converted copies where not.
    """
    if values.itemsize == itemsize and values.dtype.kind in "iu":
        data = values.view(np.uint8).data
        first, last = begins * itemsize, (begins + lengths) * itemsize
        return [data[begin:end] for begin, end in zip(first.tolist(), last.tolist(), strict=True)]
    kind = f"<u{itemsize}"
    spans = zip(begins.tolist(), (begins + lengths).tolist(), strict=True)
    return [values[begin:end].astype(kind).tobytes() for begin, end in spans]


def cut_bits(packed: NDArray[np.uint8], begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[Buffer]:
    """`cut` out of an Arrow bitmap, as bytes 0 and 1; `begins` count bits."""
    spans = zip(begins.tolist(), lengths.tolist(), strict=True)
    return [unpack_bits(packed, begin, length).tobytes() for begin, length in spans]


def ones(lengths: NDArray[np.int64]) -> list[Buffer]:
    """The mask of rows whose every token is a target."""
    most = memoryview(b"\x01" * int(lengths.max(initial=0)))
    return [most[:length] for length in lengths.tolist()]


def grouped(keys: NDArray[np.int64] | NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each distinct key, ascending, with the indices (int64[k]) at which it stands, ascending."""
    if len(keys) == 0:
        return
    if (keys == keys[0]).all():
        yield int(keys[0]), np.arange(len(keys))
        return
    order = np.argsort(keys, kind="stable")
    distinct, begins = np.unique(keys[order], return_index=True)
    yield from zip(distinct.tolist(), np.split(order, begins[1:]), strict=True)


def gathered(parts: Iterable[tuple[NDArray[np.int64], Slices]], count: int) -> Slices:
    """`Slices` of `count` rows out of parts, each with the indices (int64[k]) at which its rows stand."""
    found = list(parts)
    if len(found) == 1:
        return found[0][1]
    return Slices(
        tokens=_scattered([(at, part.tokens) for at, part in found], count),
        loss_mask=_scattered([(at, part.loss_mask) for at, part in found], count),
    )


def _scattered(parts: list[tuple[NDArray[np.int64], list[Buffer]]], count: int) -> list[Buffer]:
    if not any(pieces for _, pieces in parts):
        return []
    whole: list[Buffer] = [b""] * count
    for at, pieces in parts:
        for index, piece in zip(at.tolist(), pieces, strict=True):
            whole[index] = piece
    return whole


def unpack_bits(packed: NDArray[np.uint8], begin: int, count: int) -> NDArray[np.uint8]:
    """`count` bits of an Arrow bitmap from bit `begin` on, as uint8 0/1."""
    first = begin // 8
    bits = np.unpackbits(packed[first : (begin + count + 7) // 8], bitorder="little")
    return bits[begin - first * 8 : begin - first * 8 + count]
