"""Rows as slices of what holds them, and what a reader of one shard is.

    rows ──> where their values begin ──> one slice a row ──> joined once, by whoever sends them

Nothing here looks at single tokens, and nothing is copied where the store has the width that is asked for. One
`b"".join` of slices costs a third of what assigning them one by one does.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = "bytes | memoryview"

# Kinds of two integers.
_INTEGERS = ("ii", "iu", "ui", "uu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """Values of n rows, a contiguous buffer of bytes each; an empty list for what was not asked for.

    `tokens`: little-endian, as wide as was asked for. `loss_mask`: one byte 0 or 1 a token. `loss_weight`: float32 a
    token. `grids`: three int64 an image; `pixels`: float16 or float32, as asked for; both empty for rows of text.
    """

    tokens: list[Buffer] = field(default_factory=list)
    loss_mask: list[Buffer] = field(default_factory=list)
    loss_weight: list[Buffer] = field(default_factory=list)
    grids: list[Buffer] = field(default_factory=list)
    pixels: list[Buffer] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is read of rows. `token_bytes`, `pixel_bytes`: width of a value, at least the store's; 0: not wanted."""

    token_bytes: int = 0
    mask: bool = False
    weights: bool = False
    pixel_bytes: int = 0


class ShardReader(Protocol):
    """Reads rows of one shard. Safe to use from several threads."""

    def read(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        wanted: Wanted,
        *,
        offsets: NDArray[np.int64] | None,
    ) -> Slices:
        """`lengths[i]` values of shard row `rows[i]`, from its value `offsets[i]` on (None: from its first).

        Images are those of the whole row. Raises `StoreDamagedError` where the bytes cannot be what was admitted.
        """


def cut(values: NDArray[Any], begins: NDArray[np.int64], lengths: NDArray[np.int64], kind: str) -> list[Buffer]:
    """For each i the bytes of `values[begins[i] : begins[i] + lengths[i]]`, as numbers of the dtype `kind`.

    Views where `values` are of that dtype, or integers as wide, whatever their sign; converted copies where not.
    """
    dtype = np.dtype(kind)
    if values.dtype == dtype or (values.itemsize == dtype.itemsize and values.dtype.kind + dtype.kind in _INTEGERS):
        data = values.view(np.uint8).data
        first, last = begins * dtype.itemsize, (begins + lengths) * dtype.itemsize
        return [data[begin:end] for begin, end in zip(first.tolist(), last.tolist(), strict=True)]
    spans = zip(begins.tolist(), (begins + lengths).tolist(), strict=True)
    return [values[begin:end].astype(dtype).tobytes() for begin, end in spans]


def cut_bits(packed: NDArray[np.uint8], begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[Buffer]:
    """`cut` out of an Arrow bitmap, as bytes 0 and 1; `begins` count bits."""
    spans = zip(begins.tolist(), lengths.tolist(), strict=True)
    return [unpack_bits(packed, begin, length).tobytes() for begin, length in spans]


def repeated(value: bytes, lengths: NDArray[np.int64]) -> list[Buffer]:
    """`value` for every token of rows: their mask where every token is a target, their weights where all are equal."""
    most = memoryview(value * int(lengths.max(initial=0)))
    return [most[:length] for length in (lengths * len(value)).tolist()]


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
        tokens=scattered([(at, part.tokens) for at, part in found], count),
        loss_mask=scattered([(at, part.loss_mask) for at, part in found], count),
        loss_weight=scattered([(at, part.loss_weight) for at, part in found], count),
        grids=scattered([(at, part.grids) for at, part in found], count),
        pixels=scattered([(at, part.pixels) for at, part in found], count),
    )


def scattered(parts: list[tuple[NDArray[np.int64], list[Buffer]]], count: int) -> list[Buffer]:
    """Buffers of `count` rows out of parts; those of rows in none are empty. Nothing where no part has any."""
    if not any(pieces for _, pieces in parts):
        return []
    whole: list[Buffer] = [b""] * count
    for at, pieces in parts:
        for index, piece in zip(at.tolist(), pieces, strict=True) if pieces else ():
            whole[index] = piece
    return whole


def unpack_bits(packed: NDArray[np.uint8], begin: int, count: int) -> NDArray[np.uint8]:
    """`count` bits of an Arrow bitmap from bit `begin` on, as uint8 0/1."""
    first = begin // 8
    bits = np.unpackbits(packed[first : (begin + count + 7) // 8], bitorder="little")
    return bits[begin - first * 8 : begin - first * 8 + count]
