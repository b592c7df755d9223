"""Record batches cut into pieces of whole rows, so that checking and decoding are bounded in bytes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataserver.stores.ragged import Ragged, ragged, type_refusal
from dataserver.stores.schema import ATTENTION_MASK, INPUT_IDS, LOSS_MASK

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

    def __len__(self) -> int:
        return len(self.input_ids)


def pieces_of(batch: pa.RecordBatch, *, shard: str, with_mask: bool) -> Iterator[Piece]:
    """Cut a record batch into pieces of whole rows; raises `StoreRefusedError` for a column's type."""
    for begin in range(0, batch.num_rows, _PIECE_ROWS):
        yield from _pieces_of_rows(batch.slice(begin, _PIECE_ROWS), shard, with_mask=with_mask)


def _pieces_of_rows(batch: pa.RecordBatch, shard: str, *, with_mask: bool) -> Iterator[Piece]:
    names = [name for name in (INPUT_IDS, LOSS_MASK, ATTENTION_MASK) if name in batch.schema.names]
    columns = {name: ragged(batch.column(name), shard=shard, column=name) for name in names}
    input_ids = columns[INPUT_IDS]
    if input_ids.value_type == "bool":
        raise type_refusal(batch.schema.field(INPUT_IDS).type, shard=shard, column=INPUT_IDS)
    loss_mask = columns[LOSS_MASK] if with_mask else None
    attention_mask = columns.get(ATTENTION_MASK)
    longest = np.maximum.reduce([column.lengths for column in columns.values()])
    for begin, end in _cuts(longest):
        yield Piece(
            input_ids=input_ids.rows(begin, end),
            loss_mask=None if loss_mask is None else loss_mask.rows(begin, end),
            attention_mask=None if attention_mask is None else attention_mask.rows(begin, end),
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
