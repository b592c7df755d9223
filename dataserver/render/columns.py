"""Rows out of Parquet and Arrow files, cut into slices of row groups and record batches.

A slice is read for itself: what stands before it in its row group is decoded too, but never held.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from dataserver.errors import StoreRefusedError

# Rows that are decoded at a time.
_PARQUET_ROWS: Final = 256


def cut_parquet(path: Path, wanted: int) -> Iterator[tuple[int, int, int, int]]:
    """Slices of about `wanted` bytes: row group, its rows from and up to, and the first one's number in the file."""
    metadata = pq.read_metadata(path)
    row = 0
    for block in range(metadata.num_row_groups):
        group = metadata.row_group(block)
        for begin, end in _slices(group.num_rows, group.total_byte_size, wanted):
            yield block, begin, end, row + begin
        row += group.num_rows


def cut_arrow(path: Path, wanted: int) -> Iterator[tuple[int, int, int, int]]:
    """As `cut_parquet`, of record batches."""
    row = 0
    for block, batch in enumerate(_batches(path)):
        for begin, end in _slices(batch.num_rows, batch.nbytes, wanted):
            yield block, begin, end, row + begin
        row += batch.num_rows


def parquet_rows(path: Path, block: int, begin: int, end: int) -> Iterator[dict[str, Any]]:
    """Rows `begin` up to `end` of a row group."""
    row = 0
    with pq.ParquetFile(path, pre_buffer=False) as file:
        for batch in file.iter_batches(_PARQUET_ROWS, row_groups=[block]):
            first, last = max(begin - row, 0), min(end - row, batch.num_rows)
            if first < last:
                yield from batch.slice(first, last - first).to_pylist()
            row += batch.num_rows
            if row >= end:
                return


def arrow_rows(path: Path, block: int, begin: int, end: int) -> Iterator[dict[str, Any]]:
    """Rows `begin` up to `end` of a record batch."""
    for number, batch in enumerate(_batches(path)):
        if number == block:
            yield from batch.slice(begin, end - begin).to_pylist()
            return
    raise StoreRefusedError(f"'{path}' has no record batch {block} any more: it changed while it was read")


def _slices(rows: int, size: int, wanted: int) -> Iterator[tuple[int, int]]:
    step = max(1, rows * wanted // max(size, 1))
    return ((begin, min(begin + step, rows)) for begin in range(0, rows, step))


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Record batches of an Arrow file or stream, mapped."""
    source = pa.memory_map(str(path))
    if source.read(6) == b"ARROW1":
        file = pa.ipc.open_file(source)
        return (file.get_batch(at) for at in range(file.num_record_batches))
    source.seek(0)
    return iter(pa.ipc.open_stream(source))
