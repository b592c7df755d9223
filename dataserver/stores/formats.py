"""What admission and reading ask of a file format.

A shard is a sequence of *blocks*: the units that a format can read by themselves (an Arrow
record batch, a Parquet row group). No format decides what is valid; `admission` does.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from dataserver.stores.arrow_file import open_arrow_file
from dataserver.stores.files import ByteSource
from dataserver.stores.json_rows import read_line_columns
from dataserver.stores.parquet_file import READ_BYTES, ParquetFile
from dataserver.stores.schema import Column, LossMask

# Arrow's Parquet reader takes 3.5 to 5.2 times the record batch that it makes, as measured over row
# groups of 50 to 100,000 rows of 20 to 10^6 tokens: levels, decoders, and buffers that double as they grow.
_PARQUET_BATCHES = 6


class ShardFile(Protocol):
    """One open shard. What cannot be parsed raises `StoreRefusedError` naming the shard."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, in file order."""

    @property
    def base_address(self) -> int | None:
        """Memory address of the file's first byte if record batches are views of a map, else None."""

    def scan(self, names: Sequence[str]) -> Iterator[tuple[int, int, Iterator[pa.RecordBatch]]]:
        """Every block in order: first byte, byte after the last, record batches of the columns `names`."""

    def read_block(self, block: int, begin: int, end: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Record batches of one block, by its number and the bytes that `scan` gave for it."""


def read_columns(shard_format: str, source: ByteSource, loss_mask: LossMask) -> tuple[Column, ...] | None:
    """All columns of a shard, in file order; None for one that does not tell, because it has no rows."""
    if shard_format == "json":
        return read_line_columns(source, loss_mask)
    return open_shard_file(shard_format, source).columns


def open_shard_file(shard_format: str, source: ByteSource) -> ShardFile:
    """Open the file that `source` reads, of JSON Lines the Arrow copy."""
    return ParquetFile.open(source) if shard_format == "parquet" else open_arrow_file(source)


def decoding_bytes(shard_format: str, *, columns: int, largest_batch_bytes: int, encoded_bytes: int) -> int:
    """What Arrow holds at most while a block is decoded.

    `largest_batch_bytes`: of the record batches it comes as. `columns`: those that are decoded at once, each with a
    buffer of its own.
    """
    if shard_format == "parquet":
        return _PARQUET_BATCHES * largest_batch_bytes + min(columns * READ_BYTES, encoded_bytes)
    # The message is copied behind the schema: for a moment its bytes are there twice.
    return largest_batch_bytes + 2 * encoded_bytes
