"""What an Arrow IPC shard consists of, and what is refused of it, wherever it lies.

file    "ARROW1" 00 00 | stream | footer | footer size (4) | "ARROW1"
stream  schema | (dictionary | record batch)* | end mark
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from dataserver.errors import StoreRefusedError
from dataserver.stores.files import ByteSource, Span
from dataserver.stores.parsing import PARSE_ERRORS

FILE_MAGIC = b"ARROW1"
FILE_HEAD = 8
_FILE_TAIL = 4 + len(FILE_MAGIC)
_FEATHER_1_MAGIC = b"FEA1"
# The end mark is a message of length 0; since Arrow 0.15 the continuation mark stands before it.
_END_MARKS = (b"\xff\xff\xff\xff\x00\x00\x00\x00", b"\x00\x00\x00\x00")

T = TypeVar("T")


def find_stream(source: ByteSource) -> Span:
    """Where the stream lies in a file of either form."""
    name, size = source.name, source.size
    if size == 0:
        raise refusal(name, "it is empty: not even a schema")
    head = source.read(0, min(FILE_HEAD, size))[:]
    if head.startswith(_FEATHER_1_MAGIC):
        raise refusal(name, "it is in the old Feather format (version 1). Write it as Arrow IPC")
    if not head.startswith(FILE_MAGIC):
        return 0, size
    tail = source.read(max(0, size - _FILE_TAIL), size)[:]
    if size < FILE_HEAD + _FILE_TAIL or not tail.endswith(FILE_MAGIC):
        raise refusal(name, "it begins as an Arrow file and has no footer: it was cut off, or is still being written")
    footer = int.from_bytes(tail[:4], "little", signed=True)
    end = size - _FILE_TAIL - footer
    if footer <= 0 or end <= FILE_HEAD:
        raise refusal(name, f"its footer claims to have {footer} bytes")
    return FILE_HEAD, int(end)


def stream_reader(stream: pa.Buffer, schema: pa.Schema, names: Sequence[str]) -> pa.RecordBatchReader:
    """A reader of the columns `names`."""
    fields = [schema.get_field_index(name) for name in names]
    return pa.ipc.open_stream(pa.BufferReader(stream), options=pa.ipc.IpcReadOptions(included_fields=fields))


def next_batch(name: str, reader: pa.RecordBatchReader) -> pa.RecordBatch:
    """The next record batch, whose buffers are as long as its metadata claims."""
    batch = parsed(name, reader.read_next_batch)
    parsed(name, batch.validate)
    return batch


def check_end(name: str, mark: bytes, rest: int, batches: int, *, is_file: bool) -> None:
    """`mark`: what stands where the messages end; `rest`: how many bytes follow it in the stream."""
    if not is_file and mark not in _END_MARKS:
        raise refusal(
            name,
            f"the Arrow stream stops after {batches} record batches without an end mark: "
            "it was cut off, or its writer was not closed",
        )
    if rest:
        raise refusal(
            name,
            f"{rest} bytes follow after the end of the Arrow stream, which would never be read "
            "(were two files laid end to end?)",
        )


def check_footer(name: str, open_source: Callable[[], pa.NativeFile], batches: int) -> None:
    """Refuse a file whose footer names another number of record batches; `open_source` opens the whole file."""

    def promised() -> int:
        with open_source() as file:
            return int(pa.ipc.open_file(file).num_record_batches)

    count = parsed(name, promised)
    if count != batches:
        raise refusal(name, f"its footer names {count} record batches and it holds {batches}")


def parsed(name: str, parse: Callable[[], T]) -> T:
    """What `parse` returns; what Arrow cannot make sense of becomes a refusal that names the shard."""
    try:
        return parse()
    except (*PARSE_ERRORS, StopIteration) as error:
        raise refusal(name, f"Arrow cannot read it ({error})") from error


def refusal(name: str, problem: str) -> StoreRefusedError:
    """The error for a shard that is refused."""
    return StoreRefusedError(f"Shard '{name}': {problem}.", shard=name)
