"""An Arrow IPC shard in object storage, file or stream: messages are found by their frames, and read one at a time."""

from collections.abc import Iterator, Sequence
from typing import Self

import pyarrow as pa

from dataserver.errors import StoreRefusedError
from dataserver.stores.arrow_input import open_pieces
from dataserver.stores.arrow_message import Frame, read_frame
from dataserver.stores.arrow_stream import (
    FILE_HEAD,
    FILE_MAGIC,
    check_end,
    check_footer,
    find_stream,
    next_batch,
    parsed,
    refusal,
    stream_reader,
)
from dataserver.stores.columns import columns_of
from dataserver.stores.far_block import FarBlock, Fetched
from dataserver.stores.files import ByteSource, Span
from dataserver.stores.schema import Column

# Read at once from the beginning: what stands before the first record batch is seldom more.
_PEEK_BYTES = 1 << 16


class FarArrow:
    """One Arrow IPC shard; see `far_files.FarFile`. `stream_end` is known to whoever scans only."""

    unit = "record batch"

    def __init__(self, source: ByteSource, head: tuple[Span, bytes], stream_end: int = 0) -> None:
        self._source = source
        self._name = source.name
        self.head = head
        self._end = stream_end
        self._is_file = head[1].startswith(FILE_MAGIC)
        self._stream_head = head[1][FILE_HEAD if self._is_file else 0 :]
        self._last: Frame | None = None
        self._schema = parsed(
            self._name, lambda: pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(self._stream_head))).schema
        )
        self.columns: tuple[Column, ...] = parsed(self._name, lambda: columns_of(self._schema))

    @classmethod
    def open(cls, source: ByteSource, head: Span | None = None) -> Self:
        """Read what stands before the first record batch, which lies at `head` if that is known."""
        if head is not None:
            return cls(source, (head, source.read(*head)[:]))
        peeked = _Peeked(source)
        begin, end = find_stream(peeked)
        first = begin
        try:
            while (frame := _frame(peeked, first, end)) is not None and not (frame.is_record_batch or frame.is_end):
                first = frame.end
        except StoreRefusedError as error:
            if first != FILE_HEAD:
                raise
            raise refusal(
                source.name,
                "no message stands where its stream begins. It is damaged, or written by polars, whose Arrow files are "
                "read from local disks only: write Parquet, or Arrow with pyarrow",
            ) from error
        return cls(source, ((0, first), peeked.read(0, first)), end)

    def blocks(self, names: Sequence[str]) -> Iterator[FarBlock]:  # noqa: ARG002 - a batch is fetched as a whole
        """See `far_files.FarFile`."""
        at = self.head[0][1]
        while (frame := _frame(self._source, at, self._end)) is not None:
            at = frame.end
            if frame.is_end:
                self._last = frame
                return
            if frame.is_record_batch:
                yield FarBlock(spans=((frame.begin, frame.end),), rows=frame.rows)
            self._last = frame

    def check_end(self, blocks: int) -> None:
        """See `far_files.FarFile`."""
        at = self.head[0][1] if self._last is None else self._last.end
        mark = b""
        if self._last is not None and self._last.is_end:
            mark = self._source.read(self._last.begin, at)[:]
        check_end(self._name, mark, self._end - at, blocks, is_file=self._is_file)
        if self._is_file:
            size = self._source.size
            footer = ((self._end, size), self._source.read(self._end, size))
            check_footer(self._name, lambda: open_pieces(size, [footer]), blocks)

    def decode(self, block: int, pieces: Sequence[Fetched], names: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """See `far_files.FarFile`."""
        stream = b"".join([self._stream_head, *(data[:] for _, data in pieces)])
        yield next_batch(self._name, stream_reader(pa.py_buffer(stream), self._schema, names))


class _Peeked:
    """A source whose first bytes are read once."""

    local_path = None

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.name = source.name
        self.size = source.size
        self._first = source.read(0, min(source.size, _PEEK_BYTES))[:]

    def read(self, begin: int, end: int) -> bytes:
        return self._first[begin:end] if end <= len(self._first) else self._source.read(begin, end)[:]


def _frame(source: ByteSource, begin: int, limit: int) -> Frame | None:
    try:
        return read_frame(source, begin, limit)
    except ValueError as error:
        raise _damage(source.name, error) from error


def _damage(name: str, error: ValueError) -> StoreRefusedError:
    return refusal(name, f"Arrow cannot read it ({error})")
