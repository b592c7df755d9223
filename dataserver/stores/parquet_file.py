"""Parquet shards, read by row group.

Page checksums are verified where a file has them. `pre_buffer` is off: it would hold whole
column chunks in memory beside what is decoded, and gains nothing on a local disk.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from dataserver.errors import StoreRefusedError
from dataserver.stores.columns import columns_of
from dataserver.stores.files import ByteSource
from dataserver.stores.parquet_footer import TAIL_BYTES, TWO_FILES, column_chunks, footer_begin, holds_another_file
from dataserver.stores.parsing import PARSE_ERRORS
from dataserver.stores.schema import Column

# A record batch under decoding: so many encoded bytes, within so many rows. The upper bound holds
# where encoding hides how much comes out (a mask of ones is a few bytes for any number of them).
_BATCH_BYTES = 4 << 20
_BATCH_ROWS = (1, 1024)

# Read ahead of the decoder. Without a buffer size whole column chunks are read at once.
READ_BYTES = 1 << 20


class ParquetFile:
    """One Parquet shard; see `formats.ShardFile`."""

    base_address = None

    def __init__(self, source: ByteSource, metadata: pq.FileMetaData, columns: tuple[Column, ...]) -> None:
        self._source = source
        self._name = source.name
        self._metadata = metadata
        self.columns = columns

    @classmethod
    def open(cls, source: ByteSource) -> Self:
        """Read the footer of the file that `source` reads."""
        name = source.name
        try:
            with pq.ParquetFile(str(source.local_path), pre_buffer=False) as file:
                return cls(source, file.metadata, columns_of(file.schema_arrow))
        except PARSE_ERRORS as error:
            raise StoreRefusedError(f"Shard '{name}': Parquet cannot read it ({error}).", shard=name) from error

    def scan(self, names: Sequence[str]) -> Iterator[tuple[int, int, Iterator[pa.RecordBatch]]]:
        """Every row group in order. Where a group ends is estimated by its rows.

        Chunk metadata would say it, and is left alone: a damaged footer makes it end the process.
        """
        begin, rows, size = 0, 0, self._source.size
        for group in range(self._metadata.num_row_groups):
            rows += self._metadata.row_group(group).num_rows
            end = min(size, size * rows // max(1, self._metadata.num_rows))
            yield begin, end, self.read_block(group, begin, end, names)
            begin = end
        self._check_alone()

    def _check_alone(self) -> None:
        """Refuse two files laid end to end. A footer that only Arrow can read is left to Arrow."""
        size = self._source.size
        with suppress(ValueError):
            begin = footer_begin(self._source.read(max(0, size - TAIL_BYTES), size)[:], size)
            groups = column_chunks(self._source.read(begin, size - TAIL_BYTES)[:], begin)
            if holds_another_file(groups, begin, self._source.read):
                raise StoreRefusedError(f"Shard '{self._name}': {TWO_FILES}.", shard=self._name)

    def read_block(self, block: int, begin: int, end: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """One row group, in record batches of bounded size."""
        return read_row_group(str(self._source.local_path), self._metadata, block, names, self._name)


def read_row_group(
    file: "str | pa.NativeFile", metadata: pq.FileMetaData, number: int, names: Sequence[str], shard: str
) -> Iterator[pa.RecordBatch]:
    """One row group of an open file, or of one at a path, in record batches of bounded size."""
    group = metadata.row_group(number)
    if group.num_rows == 0:
        return
    fitting = _BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)
    rows = min(max(fitting, _BATCH_ROWS[0]), _BATCH_ROWS[1])
    rows_read = 0
    try:
        # A reader of its own for each call: readers are not safe to share between threads.
        with pq.ParquetFile(
            file, metadata=metadata, buffer_size=READ_BYTES, pre_buffer=False, page_checksum_verification=True
        ) as parquet:
            for batch in parquet.iter_batches(rows, row_groups=[number], columns=list(names), use_threads=False):
                rows_read += batch.num_rows
                yield batch
    except PARSE_ERRORS as error:
        raise _refusal(shard, number, f"it cannot be decoded ({error})") from error
    if rows_read != group.num_rows:
        raise _refusal(shard, number, f"{rows_read} rows were read where the footer promises {group.num_rows}")


def _refusal(shard: str, group: int, problem: str) -> StoreRefusedError:
    return StoreRefusedError(f"Shard '{shard}', row group {group}: {problem}.", shard=shard, row_group=group)
