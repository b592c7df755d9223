"""Arrow IPC files whose stream has no head: what polars writes.

    "ARROW1" 00 00 | schema, unframed | record batches | end mark | footer | footer size (4) | "ARROW1"

By the format a file holds a whole stream, which begins with the schema as a message. Polars writes the schema there
without the frame of one. The footer has it too, and tells where each record batch begins, so such files are read by
that; what it tells is compared with what stands there. Source: File.fbs of apache/arrow.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa

from dataserver.stores.arrow_stream import check_end, parsed, refusal
from dataserver.stores.columns import columns_of
from dataserver.stores.files import Span
from dataserver.stores.schema import Column

_BLOCK = struct.Struct("<qiiq")  # offset, bytes of metadata, padding, bytes of the body
_DICTIONARIES, _RECORD_BATCHES = 2, 3  # fields of the table `Footer`


def lacks_head(whole: pa.Buffer, begin: int) -> bool:
    """Whether no message stands at byte `begin`, where the stream of a file begins."""
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(whole.slice(begin)))
    try:
        return bool(reader.read_next_message().type != "schema")
    except (pa.ArrowException, OSError, StopIteration):
        return True


class FooterFile:
    """One such shard, memory-mapped; see `formats.ShardFile`. `end`: where its footer begins."""

    def __init__(self, name: str, whole: pa.Buffer, end: int) -> None:
        self._name = name
        self._whole = whole
        self._end = end
        self._schema = parsed(name, lambda: self._open().schema)
        self.columns: tuple[Column, ...] = parsed(name, lambda: columns_of(self._schema))

    def scan(self, names: Sequence[str]) -> Iterator[tuple[int, int, Iterator[pa.RecordBatch]]]:
        """Every record batch in order, zero-copy where it is not compressed."""
        for block, (begin, end) in enumerate(parsed(self._name, self._record_batches)):
            yield begin, end, self.read_block(block, begin, end, names)

    def read_block(self, block: int, begin: int, end: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """One record batch, found by its number in the footer."""
        # Arrow copies what it is told to pick out of a batch, and views what it reads whole. Where a batch is
        # compressed nothing can be viewed, and the other columns need not be decompressed.
        is_mapped = parsed(self._name, lambda: self._is_mapped)
        fields = None if is_mapped else [self._schema.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        batch = parsed(self._name, lambda: self._open(options).get_batch(block).select(list(names)))
        parsed(self._name, batch.validate)
        yield batch

    @property
    def base_address(self) -> int:
        """Where the file's first byte lies in memory."""
        return int(self._whole.address)

    @cached_property
    def _is_mapped(self) -> bool:
        """Whether record batches are views of the file, as the first one shows."""
        file = self._open()
        buffers = file.get_batch(0).column(0).buffers() if file.num_record_batches else []
        places = [buffer.address - self.base_address for buffer in buffers if buffer is not None and buffer.size]
        return all(0 <= at < self._whole.size for at in places)

    def _open(self, options: pa.ipc.IpcReadOptions | None = None) -> pa.ipc.RecordBatchFileReader:
        return pa.ipc.open_file(pa.BufferReader(self._whole), options=options)

    def _record_batches(self) -> list[Span]:
        """First byte and byte after the last of every record batch, after a check against the footer."""
        footer = self._whole.slice(self._end).to_pybytes()
        promised = [span[0] for span in _blocks(footer, _RECORD_BATCHES)]
        first = min([*promised, *(begin for begin, _ in _blocks(footer, _DICTIONARIES))], default=None)
        if first is None:
            return []
        stream = pa.BufferReader(self._whole.slice(first, self._end - first))
        reader = pa.ipc.MessageReader.open_stream(stream)
        spans, last = [], 0
        while True:
            begin = stream.tell()
            try:
                message = reader.read_next_message()
            except StopIteration:
                break
            last = stream.tell()
            if message.type == "record batch":
                spans.append((first + begin, first + last))
        mark = self._whole.slice(first + last, stream.tell() - last).to_pybytes()
        check_end(self._name, mark, self._end - first - stream.tell(), len(spans), is_file=True)
        if [begin for begin, _ in spans] != promised:
            raise refusal(
                self._name, f"its footer names {len(promised)} record batches and it holds {len(spans)}, or elsewhere"
            )
        return spans


def _blocks(footer: bytes, field: int) -> list[Span]:
    """First byte, and bytes, of the messages that a field of the footer lists. Raises `ValueError`."""
    try:
        (table,) = struct.unpack_from("<I", footer, 0)
        (back,) = struct.unpack_from("<i", footer, table)
        vtable = table - back
        (vtable_bytes,) = struct.unpack_from("<H", footer, vtable)
        slot = 4 + 2 * field
        at = struct.unpack_from("<H", footer, vtable + slot)[0] if slot < vtable_bytes else 0
        if not at:
            return []
        (to_vector,) = struct.unpack_from("<I", footer, table + at)
        vector = table + at + to_vector
        (count,) = struct.unpack_from("<I", footer, vector)
        found = [_BLOCK.unpack_from(footer, vector + 4 + number * _BLOCK.size) for number in range(count)]
    except struct.error as error:
        raise ValueError(f"the footer lists no blocks ({error})") from error
    return [(offset, metadata + body) for offset, metadata, _, body in found]
