"""Record batches cut into pieces of whole rows, so that checking and decoding are bounded in bytes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataserver.stores.image_rules import ImageColumns
from dataserver.stores.nested import nested
from dataserver.stores.ragged import Ragged, ragged, type_refusal
from dataserver.stores.schema import (
    ATTENTION_MASK,
    IMAGE_GRID_THW,
    INPUT_IDS,
    LOSS_MASK,
    LOSS_WEIGHT,
    PIXEL_VALUES,
)

# Temporaries of a check take some 8 to 25 bytes a token: about 50 MiB at this size.
PIECE_TOKENS = 1 << 21

# Starts and lengths of these are held at a time, so that short rows are bounded too.
_PIECE_ROWS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some rows of a shard, as admission sees them. `loss_mask` is None where every token is a target."""

    input_ids: Ragged
    loss_mask: Ragged | None
    attention_mask: Ragged | None
    loss_weight: Ragged | None
    images: ImageColumns | None

    def __len__(self) -> int:
        return len(self.input_ids)


def pieces_of(batch: pa.RecordBatch, *, shard: str, with_mask: bool) -> Iterator[Piece]:
    """Cut a record batch into pieces of whole rows; raises `StoreRefusedError` for a column's type."""
    for begin in range(0, batch.num_rows, _PIECE_ROWS):
        yield from _pieces_of_rows(batch.slice(begin, _PIECE_ROWS), shard, with_mask=with_mask)


def _pieces_of_rows(batch: pa.RecordBatch, shard: str, *, with_mask: bool) -> Iterator[Piece]:
    names = [name for name in (INPUT_IDS, LOSS_MASK, ATTENTION_MASK, LOSS_WEIGHT) if name in batch.schema.names]
    columns = {name: ragged(batch.column(name), shard=shard, column=name) for name in names}
    input_ids = columns[INPUT_IDS]
    if input_ids.value_type == "bool":
        raise type_refusal(batch.schema.field(INPUT_IDS).type, shard=shard, column=INPUT_IDS)
    loss_mask = columns[LOSS_MASK] if with_mask else None
    if LOSS_WEIGHT in columns and columns[LOSS_WEIGHT].value_type == "bool":
        kind = batch.schema.field(LOSS_WEIGHT).type
        raise type_refusal(kind, shard=shard, column=LOSS_WEIGHT, wanted="a list of floats")
    attention_mask, loss_weight = columns.get(ATTENTION_MASK), columns.get(LOSS_WEIGHT)
    images = image_columns(batch, shard=shard)
    longest = np.maximum.reduce([column.lengths for column in columns.values()])
    if images is not None:
        longest = np.maximum(longest, images.pixel_values.values.lengths)
    for begin, end in _cuts(longest):
        yield Piece(
            input_ids=input_ids.rows(begin, end),
            loss_mask=None if loss_mask is None else loss_mask.rows(begin, end),
            attention_mask=None if attention_mask is None else attention_mask.rows(begin, end),
            loss_weight=None if loss_weight is None else loss_weight.rows(begin, end),
            images=None if images is None else images.rows(begin, end),
        )


def image_columns(batch: pa.RecordBatch, *, shard: str) -> ImageColumns | None:
    """The image columns of a record batch, if it has them; raises `StoreRefusedError` for a column's type."""
    if PIXEL_VALUES not in batch.schema.names or IMAGE_GRID_THW not in batch.schema.names:
        return None
    return ImageColumns(
        pixel_values=nested(batch.column(PIXEL_VALUES), shard=shard, column=PIXEL_VALUES),
        image_grid_thw=nested(batch.column(IMAGE_GRID_THW), shard=shard, column=IMAGE_GRID_THW),
    )


def _cuts(lengths: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Row ranges of at most PIECE_TOKENS values, or of a single row; rows without tokens count 1."""
    ends = np.cumsum(np.maximum(lengths, 1))
    begin = 0
    while begin < len(lengths):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + PIECE_TOKENS, side="right")))
        yield begin, end
        begin = end
