"""A Parquet shard in object storage: a row group's wanted column chunks are fetched as a whole, then decoded."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from dataserver.errors import StoreRefusedError
from dataserver.stores.arrow_input import open_pieces
from dataserver.stores.columns import columns_of
from dataserver.stores.far_block import FarBlock, Fetched, spans_over
from dataserver.stores.files import ByteSource, Span
from dataserver.stores.parquet_file import read_row_group
from dataserver.stores.parquet_footer import (
    TAIL_BYTES,
    TWO_FILES,
    ColumnChunk,
    column_chunks,
    footer_begin,
    holds_another_file,
)
from dataserver.stores.parsing import PARSE_ERRORS
from dataserver.stores.schema import Column

# Read from the end to find the footer: it is longer in files of more than some hundred row groups only.
_TAIL_READ = 1 << 16


class FarParquet:
    """One Parquet shard; see `far_files.FarFile`."""

    unit = "row group"

    def __init__(self, source: ByteSource, head: tuple[Span, bytes]) -> None:
        self._source = source
        self._name = source.name
        self.head = head
        try:
            with pq.ParquetFile(pa.BufferReader(head[1])) as file:
                self._metadata = file.metadata
                self.columns: tuple[Column, ...] = columns_of(file.schema_arrow)
        except PARSE_ERRORS as error:
            raise self._refusal(f"Parquet cannot read it ({error})") from error

    @classmethod
    def open(cls, source: ByteSource, head: Span | None = None) -> Self:
        """Read the footer, which lies at `head` if that is known."""
        size = source.size
        begin = max(0, size - _TAIL_READ) if head is None else head[0]
        tail = source.read(begin, size)[:]
        if head is None:
            try:
                footer = footer_begin(tail, size)
            except ValueError as error:
                raise StoreRefusedError(f"Shard '{source.name}': {error}.", shard=source.name) from error
            tail = tail[footer - begin :] if footer >= begin else source.read(footer, begin)[:] + tail
            begin = footer
        return cls(source, ((begin, size), tail))

    def blocks(self, names: Sequence[str]) -> Iterator[FarBlock]:
        """See `far_files.FarFile`."""
        if len(self._chunks) != self._metadata.num_row_groups:
            raise self._refusal("two readings of its footer differ")
        for group, chunks in enumerate(self._chunks):
            rows = self._metadata.row_group(group).num_rows
            wanted = [(chunk.begin, chunk.end) for chunk in chunks if chunk.column in names]
            yield FarBlock(spans=spans_over(wanted) if rows else (), rows=rows)

    def check_end(self, blocks: int) -> None:  # noqa: ARG002
        """See `far_files.FarFile`. The footer was read first, and says it all, if it is this file's."""
        if holds_another_file(self._chunks, self.head[0][0], self._source.read):
            raise self._refusal(TWO_FILES)

    def decode(self, block: int, pieces: Sequence[Fetched], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `far_files.FarFile`."""
        with open_pieces(self._source.size, pieces) as file:
            yield from read_row_group(file, self._metadata, block, names, self._name)

    @cached_property
    def _chunks(self) -> tuple[tuple[ColumnChunk, ...], ...]:
        (begin, _), tail = self.head
        try:
            return column_chunks(tail[:-TAIL_BYTES], begin)
        except ValueError as error:
            raise self._refusal(str(error)) from error

    def _refusal(self, problem: str) -> StoreRefusedError:
        return StoreRefusedError(f"Shard '{self._name}': {problem}.", shard=self._name)
