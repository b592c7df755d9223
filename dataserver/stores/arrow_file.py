"""Arrow IPC shards on a local disk, file and stream form, told apart by their first bytes.

Both are read as the stream that they contain, out of a memory map. That way a file's footer and
its contents are checked against each other, and two files laid end to end do not pass for one.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from dataserver.stores.arrow_footer import FooterFile, lacks_head
from dataserver.stores.arrow_stream import (
    check_end,
    check_footer,
    find_stream,
    next_batch,
    parsed,
    refusal,
    stream_reader,
)
from dataserver.stores.columns import columns_of
from dataserver.stores.files import ByteSource
from dataserver.stores.schema import Column


def open_arrow_file(source: ByteSource) -> "ArrowFile | FooterFile":
    """Map the file that `source` reads."""
    begin, end = find_stream(source)
    with pa.memory_map(str(source.local_path)) as mapped:
        whole = mapped.read_buffer()
    if begin and lacks_head(whole, begin):
        return FooterFile(source.name, whole, end)
    return ArrowFile(source.name, whole, begin, end)


class ArrowFile:
    """One Arrow IPC shard, memory-mapped; see `formats.ShardFile`."""

    def __init__(self, name: str, whole: pa.Buffer, begin: int, end: int) -> None:
        self._name = name
        self._whole = whole
        self._begin = begin
        self._stream = whole.slice(begin, end - begin)
        self._is_file = begin > 0
        self._schema = parsed(name, lambda: pa.ipc.open_stream(pa.BufferReader(self._stream)).schema)
        self.columns: tuple[Column, ...] = parsed(name, lambda: columns_of(self._schema))

    def scan(self, names: Sequence[str]) -> Iterator[tuple[int, int, Iterator[pa.RecordBatch]]]:
        """Every record batch in order, zero-copy where it is not compressed."""
        spans = parsed(self._name, self._record_batches)
        if self._is_file:
            check_footer(self._name, lambda: pa.BufferReader(self._whole), len(spans))
        reader = parsed(self._name, lambda: stream_reader(self._stream, self._schema, names))
        for begin, end in spans:
            yield begin, end, iter((next_batch(self._name, reader),))

    def read_block(self, block: int, begin: int, end: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """One record batch, read behind a copy of what stands before the first: schema and dictionaries."""
        first = parsed(self._name, self._first_record_batch)
        head = self._whole.slice(self._begin, first - self._begin).to_pybytes()
        joined = pa.py_buffer(head + self._whole.slice(begin, end - begin).to_pybytes())
        yield next_batch(self._name, stream_reader(joined, self._schema, names))

    @property
    def base_address(self) -> int:
        """Where the file's first byte lies in memory."""
        return int(self._whole.address)

    def _record_batches(self) -> list[tuple[int, int]]:
        """First byte and byte after the last of every record batch, after a check of the stream's end."""
        source = pa.BufferReader(self._stream)
        spans: list[tuple[int, int]] = []
        end = 0
        for message, begin, end in _messages(source):
            if message == "record batch":
                spans.append((self._begin + begin, self._begin + end))
        read = source.tell()
        mark = self._stream.slice(end, read - end).to_pybytes()
        check_end(self._name, mark, self._stream.size - read, len(spans), is_file=self._is_file)
        return spans

    def _first_record_batch(self) -> int:
        for message, begin, _ in _messages(pa.BufferReader(self._stream)):
            if message == "record batch":
                return self._begin + begin
        raise refusal(self._name, "it holds no record batch")


def _messages(source: pa.NativeFile) -> Iterator[tuple[str, int, int]]:
    """Type, first byte and byte after the last of every message."""
    reader = pa.ipc.MessageReader.open_stream(source)
    while True:
        begin = source.tell()
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        yield message.type, begin, source.tell()
