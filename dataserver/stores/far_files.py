"""What admission and reading ask of a format whose file is far away: every range is asked for once, and by name.

head ──> the file's columns, and where its blocks lie        (kept in the index)
spans ──> one block, decoded from exactly these bytes        (one GET each, almost always one a block)
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from dataserver.stores.far_arrow import FarArrow
from dataserver.stores.far_block import FarBlock, Fetched
from dataserver.stores.far_parquet import FarParquet
from dataserver.stores.files import ByteSource, Span
from dataserver.stores.formats import decoding_bytes
from dataserver.stores.schema import Column


class FarFile(Protocol):
    """One open shard. What cannot be parsed raises `StoreRefusedError` naming the shard."""

    @property
    def unit(self) -> str:
        """What a block is called, for messages."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, in file order."""

    @property
    def head(self) -> tuple[Span, bytes]:
        """What a reader needs before any block."""

    def blocks(self, names: Sequence[str]) -> Iterator[FarBlock]:
        """Every block in file order; `names`: the columns that its spans are to cover."""

    def check_end(self, blocks: int) -> None:
        """Refuse a file that does not end behind its `blocks` as it should."""

    def decode(self, block: int, pieces: Sequence[Fetched], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Record batches of one block, from the bytes of its spans."""


def open_far_file(shard_format: str, source: ByteSource, head: Span | None = None) -> FarFile:
    """Open the Parquet or Arrow file that `source` reads, whose head lies at `head` if that is known."""
    return FarParquet.open(source, head) if shard_format == "parquet" else FarArrow.open(source, head)


def far_decoding_bytes(shard_format: str, *, columns: int, largest_batch_bytes: int, encoded_bytes: int) -> int:
    """`formats.decoding_bytes` where all encoded bytes of a block are held while it is decoded."""
    decoding = decoding_bytes(
        shard_format, columns=columns, largest_batch_bytes=largest_batch_bytes, encoded_bytes=encoded_bytes
    )
    return decoding + encoded_bytes
