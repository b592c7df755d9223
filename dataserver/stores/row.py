"""Rows of a store as arrays of their own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InternalError
from dataserver.stores.destination import Buffer, Destination
from dataserver.stores.tables import Tables
from dataserver.wire.store_info import ImageFigures

# Tokens and values of images that are read at a time by whoever reads all rows.
_VALUES_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row as it lies in the store: `input_ids` int32[n], `loss_mask` uint8[n] of 0 and 1.

    `loss_weight`: float32[n], None where the store has none. `pixel_values`: float16|float32[patches, values of one]
    and `image_grid_thw`: int64[images, 3], None in a row of text.
    """

    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    loss_weight: NDArray[np.float32] | None = None
    pixel_values: NDArray[np.float16] | NDArray[np.float32] | None = None
    image_grid_thw: NDArray[np.int64] | None = None


def rows_of(read: Destination, lengths: NDArray[np.int64], images: ImageFigures | None) -> list[Row]:
    """The rows that were read: tokens of 4 bytes, mask and what else there is; `images` are their store's.

    Copies: a row that is kept must not keep the others alive, nor the file mapped.
    """
    tokens, mask, weights = read.tokens, read.loss_mask, read.loss_weight
    if tokens is None or mask is None:
        raise InternalError("rows were read without tokens or without a mask")
    rows = []
    for at, (begin, length) in enumerate(zip(read.begins.tolist(), lengths.tolist(), strict=True)):
        span = slice(begin, begin + length)
        matrices: dict[str, NDArray[Any]] = {}
        if images is not None and read.grids and read.grids[at]:
            matrices["pixel_values"] = _matrix(read.pixels[at], f"<f{images.pixel_bytes}", images.patch_values)
            matrices["image_grid_thw"] = _matrix(read.grids[at], "<i8", 3)
        rows.append(
            Row(
                input_ids=tokens[span].view("<i4").copy(),
                loss_mask=mask[span].copy(),
                loss_weight=None if weights is None else weights[span].copy(),
                **matrices,
            )
        )
    return rows


def row_spans(tables: Tables, images: ImageFigures | None) -> Iterator[range]:
    """All rows, as many at a time as have a bounded number of tokens, and of values of their `images`."""
    sizes = np.maximum(tables.lengths, 1).astype(np.int64)
    if images is not None:
        sizes[tables.images.rows] += tables.images.patches * images.patch_values
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + _VALUES_AT_ONCE, side="right")))
        yield range(begin, end)
        begin = end


def _matrix(data: Buffer, kind: str, width: int) -> NDArray[Any]:
    return np.frombuffer(data, dtype=kind).reshape(-1, width).copy()
