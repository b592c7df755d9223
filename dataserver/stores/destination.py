"""Where rows are read to, and what a reader of one shard is.

    rows ──> where their values begin ──> copied once, each to its place in one array per column

Whoever wants rows allocates the arrays and says where in them each row goes; readers of stores and shards pass that on
with the part of the rows that are theirs. Nothing here looks at single tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = "bytes | memoryview"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Room for n rows: row i goes to positions `begins[i]` (int64[n]) on of each array; None: that is not wanted.

    `tokens`: uint16[m] or uint32[m], at least as wide as the store's. `loss_mask`: uint8[m], 0 or 1. `loss_weight`:
    float32[m]. Images as a contiguous buffer a row, empty for rows of text: `grids` three int64 an image, `pixels` in
    values of `pixel_bytes`, float16 or float32, at least as wide as the store's (0: not wanted, both lists are empty).
    """

    begins: NDArray[np.int64]
    tokens: NDArray[np.uint16] | NDArray[np.uint32] | None = None
    loss_mask: NDArray[np.uint8] | None = None
    loss_weight: NDArray[np.float32] | None = None
    pixel_bytes: int = 0
    grids: list[Buffer] = field(default_factory=list)
    pixels: list[Buffer] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        begins: NDArray[np.int64],
        size: int,
        *,
        covered: bool,
        token_bytes: int = 0,
        mask: bool = False,
        weights: bool = False,
        pixel_bytes: int = 0,
    ) -> Self:
        """Room of `size` positions for rows that begin at `begins` (int64[n]), with zeros where none lies.

        `covered`: the rows cover all of it, and zeros would be written for nothing. `token_bytes`, `pixel_bytes`: how
        wide; 0: not wanted.
        """
        room = np.empty if covered else np.zeros
        return cls(
            begins=begins,
            tokens=room(size, dtype=f"<u{token_bytes}") if token_bytes else None,
            loss_mask=room(size, dtype=np.uint8) if mask else None,
            loss_weight=room(size, dtype="<f4") if weights else None,
            pixel_bytes=pixel_bytes,
            grids=[b""] * len(begins) if pixel_bytes else [],
            pixels=[b""] * len(begins) if pixel_bytes else [],
        )

    @classmethod
    def end_to_end(
        cls,
        lengths: NDArray[np.int64],
        *,
        token_bytes: int = 0,
        mask: bool = False,
        weights: bool = False,
        pixel_bytes: int = 0,
    ) -> Self:
        """Room for rows of `lengths` (int64[n]) with nothing between them; as `of` besides."""
        ends = np.cumsum(lengths)
        return cls.of(
            ends - lengths,
            int(lengths.sum()),
            covered=True,
            token_bytes=token_bytes,
            mask=mask,
            weights=weights,
            pixel_bytes=pixel_bytes,
        )

    def at(self, numbers: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Where those of its rows begin, int64[k]; None: all."""
        return self.begins if numbers is None else self.begins[numbers]


class ShardReader(Protocol):
    """Reads rows of one shard. Safe to use from several threads."""

    def read(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        into: Destination,
        numbers: NDArray[np.int64] | None,
        *,
        offsets: NDArray[np.int64] | None,
    ) -> None:
        """Write `lengths[i]` values of shard row `rows[i]`, from its value `offsets[i]` on (None: from its first).

        It goes to row `numbers[i]` of `into` (None: to row i). Images are those of the whole row. Raises
        `StoreDamagedError` where the bytes cannot be what was admitted.
        """


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


def part_of(numbers: NDArray[np.int64] | None, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of a destination that the rows `at` (int64[k]) of a part of it go to."""
    return at if numbers is None else numbers[at]
