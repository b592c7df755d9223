"""A store whose tokens say which row they belong to."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataserver.wire.micro_batch import MicroBatch

MAX_LENGTH = 16


def row_tokens(row: int) -> list[int]:
    """The tokens of `row`: its number, then a sequence that no other row has; 4 to 16 of them."""
    length = 4 + row * 7 % 13
    return [row, *((row * 131 + position) % 50_000 for position in range(1, length))]


def write_rows(path: Path, rows: int) -> None:
    """Write a Parquet store of `rows` rows; all tokens but the first of each are targets."""
    input_ids = [row_tokens(row) for row in range(rows)]
    loss_mask = [[0] + [1] * (len(ids) - 1) for ids in input_ids]
    path.mkdir(parents=True)
    table = pa.table(
        {
            "input_ids": pa.array(input_ids, pa.list_(pa.int32())),
            "loss_mask": pa.array(loss_mask, pa.list_(pa.int8())),
        }
    )
    pq.write_table(table, path / "rows.parquet", row_group_size=25)


def rows_of(micro_batch: MicroBatch) -> list[int]:
    """Which rows `micro_batch` holds; `ValueError` when any of its bytes are not theirs."""
    rows = []
    starts = micro_batch.cu_seqlens[: len(micro_batch.lengths)]  # padding may follow as a sub-sequence of its own
    for start, length in zip(starts, micro_batch.lengths, strict=True):
        tokens = micro_batch.tokens[start : start + length].tolist()
        row = tokens[0]
        mask = micro_batch.loss_mask[start : start + length].tolist()
        if tokens != row_tokens(row) or mask != [False] + [True] * (length - 1):
            raise ValueError(f"step {micro_batch.step} round {micro_batch.round}: {tokens} with mask {mask} is no row")
        rows.append(row)
    return rows
