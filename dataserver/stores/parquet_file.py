"""Parquet shards, read by row group.

Page checksums are verified where a file has them. `pre_buffer` is off: it would hold whole
column chunks in memory beside what is decoded, and gains nothing on a local disk.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from dataserver.errors import StoreRefusedError
from dataserver.stores.schema import Column, columns_of

# Decoded bytes of one record batch, roughly: pages are decoded piece by piece, so that a row
# group of gigabytes costs no more memory than this.
_BATCH_BYTES = 8 << 20

# Read ahead of the decoder. Without a buffer size whole column chunks are read at once.
_READ_BYTES = 1 << 20


class ParquetFile:
    """One Parquet shard; see `formats.ShardFile`."""

    base_address = None

    def __init__(self, path: Path, name: str, metadata: pq.FileMetaData, columns: tuple[Column, ...]) -> None:
        self._path = path
        self._name = name
        self._metadata = metadata
        self.columns = columns

    @classmethod
    def open(cls, path: Path, name: str) -> Self:
        """Read the footer of the file at `path`."""
        try:
            with pq.ParquetFile(path, pre_buffer=False) as file:
                return cls(path, name, file.metadata, columns_of(file.schema_arrow))
        except (pa.ArrowException, OSError) as error:
            raise StoreRefusedError(f"Shard '{name}': Parquet cannot read it ({error}).", shard=name) from error

    def scan(self, names: Sequence[str]) -> Iterator[tuple[int, int, Iterator[pa.RecordBatch]]]:
        """Every row group in order."""
        begin = 0
        for group in range(self._metadata.num_row_groups):
            end = max(begin, self._end_of(group))
            yield begin, end, self.read_block(group, begin, end, names)
            begin = end

    def read_block(self, block: int, begin: int, end: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """One row group, in record batches of about `_BATCH_BYTES`."""
        group = self._metadata.row_group(block)
        if group.num_rows == 0:
            return
        rows = max(1, _BATCH_BYTES * group.num_rows // max(1, _selected_bytes(group, names)))
        rows_read = 0
        try:
            # A reader of its own for each call: readers are not safe to share between threads.
            with pq.ParquetFile(
                self._path,
                metadata=self._metadata,
                buffer_size=_READ_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
            ) as file:
                for batch in file.iter_batches(rows, row_groups=[block], columns=list(names), use_threads=False):
                    rows_read += batch.num_rows
                    yield batch
        except (pa.ArrowException, OSError) as error:
            raise self._refusal(block, f"it cannot be decoded ({error})") from error
        if rows_read != group.num_rows:
            raise self._refusal(block, f"{rows_read} rows were read where the footer promises {group.num_rows}")

    def _end_of(self, group: int) -> int:
        """The byte after the last of a row group."""
        chunks = self._metadata.row_group(group)
        ends = []
        for index in range(chunks.num_columns):
            chunk = chunks.column(index)
            ends.append((chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size)
        return max(ends, default=0)

    def _refusal(self, group: int, problem: str) -> StoreRefusedError:
        return StoreRefusedError(
            f"Shard '{self._name}', row group {group}: {problem}.", shard=self._name, row_group=group
        )


def _selected_bytes(group: pq.RowGroupMetaData, names: Sequence[str]) -> int:
    """Decoded bytes of the columns `names`: 8 a value, as dictionary-encoded chunks understate their size."""
    total = 0
    for index in range(group.num_columns):
        chunk = group.column(index)
        if chunk.path_in_schema.split(".", 1)[0] in names:
            total += chunk.num_values * 8
    return total
