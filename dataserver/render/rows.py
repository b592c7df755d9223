"""The rows of a set of conversations, in chunks that any process can read for itself.

    files (as a store's are found) ──> chunks of about equal bytes, in order ──> rows of one chunk

Where a chunk begins depends on the files alone, so that the same input is cut in the same way however many processes
render it and however often they are killed.
"""

import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from dataserver.errors import StoreRefusedError
from dataserver.render.conversation import RowError
from dataserver.stores.discovery import discover

# A chunk is what is lost when a process is killed, and what one process holds at a time.
_CHUNK_BYTES: Final = (64 << 10, 16 << 20)
_CHUNKS_WANTED: Final = 64

_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A set of conversations: local files in `directory`, of one `format` (json, parquet, arrow), in order."""

    directory: Path
    format: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows of one file. `path` is relative to the input.

    Text: bytes `begin` up to `end` of the file, or -1: all of it, decompressed. Else rows `begin` up to `end` of row
    group or record batch `block`. `first_row`: the first row's number within the file.
    """

    number: int
    path: str
    block: int
    begin: int
    end: int
    first_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow:
    """A row, or the reason why it is none; `number` counts within the file, from 0."""

    number: int
    value: dict[str, Any] | RowError


def find_input(path: Path) -> Input:
    """The files at `path`, found as those of a store are; raises what `discover` raises."""
    found = discover(path)
    return Input(directory=path if path.is_dir() else path.parent, format=found.format, paths=found.paths)


def chunks_of(source: Input) -> tuple[Chunk, ...]:
    """All chunks, in the order of their rows. Reads text files once, of others the footers."""
    sizes = {path: (source.directory / path).stat().st_size for path in source.paths}
    wanted = min(max(sum(sizes.values()) // _CHUNKS_WANTED, _CHUNK_BYTES[0]), _CHUNK_BYTES[1])
    cut = {"json": _cut_text, "parquet": _cut_parquet, "arrow": _cut_arrow}[source.format]
    found = [(path, place) for path in source.paths for place in cut(source.directory / path, wanted)]
    return tuple(
        Chunk(number=number, path=path, block=block, begin=begin, end=end, first_row=first_row)
        for number, (path, (block, begin, end, first_row)) in enumerate(found)
    )


def rows_of(source: Input, chunk: Chunk) -> Iterator[InputRow]:
    """The rows of a chunk; a line that is no object comes with its fault."""
    path = source.directory / chunk.path
    if source.format == "json":
        lines = _lines(path, chunk.begin, chunk.end)
        return (InputRow(number=chunk.first_row + at, value=_object(line)) for at, line in enumerate(lines))
    batch = _parquet_rows(path, chunk) if source.format == "parquet" else _arrow_rows(path, chunk)
    return (InputRow(number=chunk.first_row + at, value=row) for at, row in enumerate(batch.to_pylist()))


# -- text ------------------------------------------------------------------------------------


def _cut_text(path: Path, wanted: int) -> Iterator[tuple[int, int, int, int]]:
    if _is_compressed(path):
        yield 0, 0, -1, 0
        return
    begin = row = 0
    with path.open("rb") as file:
        while True:
            end, rows = _end_of_chunk(file, begin, wanted)
            if end == begin:
                return
            yield 0, begin, end, row
            begin, row = end, row + rows


def _end_of_chunk(file: io.BufferedReader, begin: int, wanted: int) -> tuple[int, int]:
    """Where the line ends in which byte `begin + wanted` lies, and how many lines there are up to it."""
    file.seek(begin)
    lines = 0
    left = wanted
    while left > 0 and (read := file.read(min(left, _READ_BYTES))):
        lines += read.count(b"\n")
        left -= len(read)
    rest = file.readline()
    if rest or (file.tell() > begin and not _ends_a_line(file)):
        lines += 1
    return file.tell(), lines


def _ends_a_line(file: io.BufferedReader) -> bool:
    file.seek(-1, io.SEEK_CUR)
    return file.read(1) == b"\n"


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() in (".gz", ".zst")


def _lines(path: Path, begin: int, end: int) -> Iterator[bytes]:
    if end < 0:
        with _decompressed(path) as stream:
            yield from stream
        return
    with path.open("rb") as file:
        file.seek(begin)
        yield from io.BytesIO(file.read(end - begin))


def _decompressed(path: Path) -> BinaryIO:
    if path.suffix.lower() == ".gz":
        return cast("BinaryIO", gzip.open(path, "rb"))
    return io.BufferedReader(cast("io.RawIOBase", pa.CompressedInputStream(pa.OSFile(str(path), "rb"), "zstd")))


def _object(line: bytes) -> dict[str, Any] | RowError:
    try:
        value = orjson.loads(line)
    except (ValueError, RecursionError) as error:
        return RowError(f"it is no JSON ({error})")
    return value if isinstance(value, dict) else RowError(f"it is {type(value).__name__}, not a JSON object")


# -- columns ---------------------------------------------------------------------------------


def _cut_parquet(path: Path, wanted: int) -> Iterator[tuple[int, int, int, int]]:
    metadata = pq.read_metadata(path)
    row = 0
    for block in range(metadata.num_row_groups):
        group = metadata.row_group(block)
        for begin, end in _slices(group.num_rows, group.total_byte_size, wanted):
            yield block, begin, end, row + begin
        row += group.num_rows


def _cut_arrow(path: Path, wanted: int) -> Iterator[tuple[int, int, int, int]]:
    row = 0
    for block, batch in enumerate(_batches(path)):
        for begin, end in _slices(batch.num_rows, batch.nbytes, wanted):
            yield block, begin, end, row + begin
        row += batch.num_rows


def _slices(rows: int, size: int, wanted: int) -> Iterator[tuple[int, int]]:
    step = max(1, rows * wanted // max(size, 1))
    return ((begin, min(begin + step, rows)) for begin in range(0, rows, step))


def _parquet_rows(path: Path, chunk: Chunk) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return file.read_row_group(chunk.block).slice(chunk.begin, chunk.end - chunk.begin)


def _arrow_rows(path: Path, chunk: Chunk) -> pa.RecordBatch:
    for block, batch in enumerate(_batches(path)):
        if block == chunk.block:
            return batch.slice(chunk.begin, chunk.end - chunk.begin)
    raise StoreRefusedError(f"'{path}' has no record batch {chunk.block} any more: it changed while it was read")


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Record batches of an Arrow file or stream, mapped."""
    source = pa.memory_map(str(path))
    if source.read(6) == b"ARROW1":
        file = pa.ipc.open_file(source)
        return (file.get_batch(at) for at in range(file.num_record_batches))
    source.seek(0)
    return iter(pa.ipc.open_stream(source))
