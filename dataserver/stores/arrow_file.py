"""Arrow IPC shards, file and stream form, told apart by their first bytes.

    file    "ARROW1" 00 00 | stream | footer | footer size (4) | "ARROW1"
    stream  schema | (dictionary | record batch)* | end mark

Both are read as the stream that they contain, out of a memory map. That way a file's footer and
its contents are checked against each other, and two files laid end to end do not pass for one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Self, TypeVar

import pyarrow as pa

from dataserver.errors import StoreRefusedError
from dataserver.stores.files import ByteSource
from dataserver.stores.parsing import PARSE_ERRORS
from dataserver.stores.schema import Column, columns_of

_FILE_MAGIC = b"ARROW1"
_FILE_HEAD = 8
_FILE_TAIL = 4 + len(_FILE_MAGIC)
_FEATHER_1_MAGIC = b"FEA1"
# The end mark is a message of length 0; since Arrow 0.15 the continuation mark stands before it.
_END_MARKS = (b"\xff\xff\xff\xff\x00\x00\x00\x00", b"\x00\x00\x00\x00")

T = TypeVar("T")


class ArrowFile:
    """One Arrow IPC shard, memory-mapped; see `formats.ShardFile`."""

    def __init__(self, name: str, whole: pa.Buffer, begin: int, end: int) -> None:
        self._name = name
        self._whole = whole
        self._begin = begin
        self._stream = whole.slice(begin, end - begin)
        self._is_file = begin > 0
        self._schema = _parsed(name, lambda: pa.ipc.open_stream(pa.BufferReader(self._stream)).schema)
        self.columns: tuple[Column, ...] = _parsed(name, lambda: columns_of(self._schema))

    @classmethod
    def open(cls, source: ByteSource) -> Self:
        """Map the file that `source` reads."""
        if source.size == 0:
            raise _refusal(source.name, "it is empty: not even a schema")
        with pa.memory_map(str(source.local_path)) as mapped:
            whole = mapped.read_buffer()
        begin, end = _find_stream(source.name, whole)
        return cls(source.name, whole, begin, end)

    def scan(self, names: Sequence[str]) -> Iterator[tuple[int, int, Iterator[pa.RecordBatch]]]:
        """Every record batch in order, zero-copy where it is not compressed."""
        spans = _parsed(self._name, self._record_batches)
        if self._is_file:
            self._check_against_footer(len(spans))
        reader = _parsed(self._name, lambda: self._reader(self._stream, names))
        for begin, end in spans:
            yield begin, end, iter((self._next_batch(reader),))

    def read_block(self, block: int, begin: int, end: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """One record batch, read behind a copy of what stands before the first: schema and dictionaries."""
        first = _parsed(self._name, self._first_record_batch)
        head = self._whole.slice(self._begin, first - self._begin).to_pybytes()
        joined = pa.py_buffer(head + self._whole.slice(begin, end - begin).to_pybytes())
        yield self._next_batch(self._reader(joined, names))

    @property
    def base_address(self) -> int:
        """Where the file's first byte lies in memory."""
        return int(self._whole.address)

    def _next_batch(self, reader: pa.RecordBatchReader) -> pa.RecordBatch:
        """The next record batch, whose buffers are as long as its metadata claims."""
        batch = _parsed(self._name, reader.read_next_batch)
        _parsed(self._name, batch.validate)
        return batch

    def _reader(self, stream: pa.Buffer, names: Sequence[str]) -> pa.RecordBatchReader:
        fields = [self._schema.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        return pa.ipc.open_stream(pa.BufferReader(stream), options=options)

    def _record_batches(self) -> list[tuple[int, int]]:
        """First byte and byte after the last of every record batch, after a check of the stream's end."""
        source = pa.BufferReader(self._stream)
        spans: list[tuple[int, int]] = []
        end = 0
        for message, begin, end in _messages(source):
            if message == "record batch":
                spans.append((self._begin + begin, self._begin + end))
        self._check_end(end, source.tell(), len(spans))
        return spans

    def _first_record_batch(self) -> int:
        for message, begin, _ in _messages(pa.BufferReader(self._stream)):
            if message == "record batch":
                return self._begin + begin
        raise _refusal(self._name, "it holds no record batch")

    def _check_end(self, end: int, read: int, batches: int) -> None:
        """`end`: where the last message ends; `read`: where the reader stopped."""
        mark = self._stream.slice(end, read - end).to_pybytes()
        if not self._is_file and mark not in _END_MARKS:
            raise _refusal(
                self._name,
                f"the Arrow stream stops after {batches} record batches without an end mark: "
                "it was cut off, or its writer was not closed",
            )
        rest = self._stream.size - read
        if rest:
            raise _refusal(
                self._name,
                f"{rest} bytes follow after the end of the Arrow stream, which would never be read "
                "(were two files laid end to end?)",
            )

    def _check_against_footer(self, batches: int) -> None:
        whole = self._whole
        promised = _parsed(self._name, lambda: pa.ipc.open_file(pa.BufferReader(whole)).num_record_batches)
        if promised != batches:
            raise _refusal(self._name, f"its footer names {promised} record batches and it holds {batches}")


def _find_stream(name: str, whole: pa.Buffer) -> tuple[int, int]:
    """First byte of the stream, and the byte after its last."""
    size = whole.size
    head = whole.slice(0, min(_FILE_HEAD, size)).to_pybytes()
    if head.startswith(_FEATHER_1_MAGIC):
        raise _refusal(name, "it is in the old Feather format (version 1). Write it as Arrow IPC")
    if not head.startswith(_FILE_MAGIC):
        return 0, size
    if size < _FILE_HEAD + _FILE_TAIL or whole.slice(size - 6, 6).to_pybytes() != _FILE_MAGIC:
        raise _refusal(name, "it begins as an Arrow file and has no footer: it was cut off, or is still being written")
    footer = int.from_bytes(whole.slice(size - _FILE_TAIL, 4).to_pybytes(), "little", signed=True)
    end = size - _FILE_TAIL - footer
    if footer <= 0 or end <= _FILE_HEAD:
        raise _refusal(name, f"its footer claims to have {footer} bytes")
    return _FILE_HEAD, int(end)


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


def _parsed(name: str, parse: Callable[[], T]) -> T:
    """What `parse` returns; what Arrow cannot make sense of becomes a refusal that names the shard."""
    try:
        return parse()
    except (*PARSE_ERRORS, StopIteration) as error:
        raise _refusal(name, f"Arrow cannot read it ({error})") from error


def _refusal(name: str, problem: str) -> StoreRefusedError:
    return StoreRefusedError(f"Shard '{name}': {problem}.", shard=name)
