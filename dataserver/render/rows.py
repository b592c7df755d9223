"""The rows of a set of conversations, in chunks that any process can read for itself.

    files (as a store's are found) ──> chunks of about equal bytes, in order ──> rows of one chunk

Where a chunk begins depends on the files alone, so that the same input is cut in the same way however many processes
render it and however often they are killed.
"""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa

from dataserver.errors import StoreRefusedError
from dataserver.render.columns import arrow_rows, cut_arrow, cut_parquet, parquet_rows
from dataserver.render.conversation import RowError
from dataserver.stores.discovery import discover
from dataserver.stores.files import FileStamp
from dataserver.stores.json_lines import MAX_LINE_BYTES, json_lines
from dataserver.stores.local_files import LocalFiles

# A chunk is what is lost when a process is killed, and what one process holds at a time.
_CHUNK_BYTES: Final = (64 << 10, 16 << 20)
_CHUNKS_WANTED: Final = 64

_READ_BYTES: Final = 1 << 20

# Bytes that are done, and bytes in all.
ReportBytes = Callable[[int, int], None]


def report_nothing(_done: int, _total: int) -> None:
    """Whoever does not want to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A set of conversations: local files in `directory`, of one `format` (json, parquet, arrow), in order.

    `stamps`: what tells each file from a later one of its name, as they were when the input was found.
    """

    directory: Path
    format: str
    paths: tuple[str, ...]
    stamps: tuple[FileStamp, ...]

    def check_unchanged(self, path: str) -> None:
        """Raise `StoreRefusedError` if the file at `path` is not the one that was found."""
        was, now = self.stamps[self.paths.index(path)], LocalFiles(root=self.directory).stat(path)
        if now != was:
            raise StoreRefusedError(
                f"File '{path}' changed while it was rendered (it was {was}, and is {now}). Wait until whoever writes "
                "it is done, and render again.",
                shard=path,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows of one file. `path` is relative to the input.

    Text: bytes `begin` up to `end` of the file, of a compressed one lines `begin` up to `end`. Else rows `begin` up to
    `end` of row group or record batch `block`. `first_row`: the first row's number within the file.
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
    directory = path if path.is_dir() else path.parent
    stamps = tuple(LocalFiles(root=directory).stat(name) for name in found.paths)
    return Input(directory=directory, format=found.format, paths=found.paths, stamps=stamps)


def chunks_of(source: Input, progress: ReportBytes = report_nothing) -> tuple[Chunk, ...]:
    """All chunks, in the order of their rows. Reads text files once, of others the footers.

    `progress`: bytes of text that were read, and bytes in all. Raises `StoreRefusedError` for what cannot be read.
    """
    done, total = 0, sum(stat_of(source, path).st_size for path in source.paths)
    wanted = min(max(total // _CHUNKS_WANTED, _CHUNK_BYTES[0]), _CHUNK_BYTES[1])

    def read(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    found = []
    for path in source.paths:
        with faults_told(path):
            found += [(path, place) for place in _cut(source, path, wanted, read)]
    return tuple(
        Chunk(number=number, path=path, block=block, begin=begin, end=end, first_row=first_row)
        for number, (path, (block, begin, end, first_row)) in enumerate(found)
    )


def stat_of(source: Input, path: str) -> os.stat_result:
    """Raises `StoreRefusedError` for a file that is gone."""
    with faults_told(path):
        return (source.directory / path).stat()


def _cut(source: Input, path: str, wanted: int, read: Callable[[int], None]) -> Iterator[tuple[int, int, int, int]]:
    file = source.directory / path
    if source.format == "json":
        return (_cut_compressed if _is_compressed(file) else _cut_text)(file, wanted, read)
    return (cut_parquet if source.format == "parquet" else cut_arrow)(file, wanted)


def rows_of(source: Input, chunk: Chunk) -> Iterator[InputRow]:
    """The rows of a chunk; a line that is no object comes with its fault.

    Raises `StoreRefusedError` for a file that cannot be read, or is another one now.
    """
    values = _objects(source, chunk) if source.format == "json" else _records(source, chunk)
    number = chunk.first_row
    while True:
        with faults_told(chunk.path):
            value = next(values, None)
        if value is None:
            break
        yield InputRow(number=number, value=value)
        number += 1
    with faults_told(chunk.path):
        source.check_unchanged(chunk.path)


@contextmanager
def faults_told(path: str) -> Iterator[None]:
    """Raise `StoreRefusedError` for what reading the file raises."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StoreRefusedError(
            f"File '{path}' cannot be read ({error}). Was it cut off, or is it damaged?", shard=path
        ) from error


def _cut_text(path: Path, wanted: int, read: Callable[[int], None]) -> Iterator[tuple[int, int, int, int]]:
    begin = row = 0
    with path.open("rb") as file:
        while True:
            end, rows = _end_of_chunk(file, begin, wanted)
            if end == begin:
                return
            read(end - begin)
            yield 0, begin, end, row
            begin, row = end, row + rows


def _cut_compressed(path: Path, wanted: int, read: Callable[[int], None]) -> Iterator[tuple[int, int, int, int]]:
    """By lines, since what comes before a place has to be decompressed anyway, which each chunk does for itself.

    So their number has to be small: some 16 of a file, where text is compressed to a quarter.
    """
    wanted = max(wanted, path.stat().st_size // 4)
    begin = lines = size = 0
    for _, line in json_lines(LocalFiles(root=path.parent).open(path.name), read):
        lines += 1
        size += len(line)
        if size >= wanted:
            yield 0, begin, lines, begin
            begin, size = lines, 0
    if begin < lines:
        yield 0, begin, lines, begin


def _end_of_chunk(file: io.BufferedReader, begin: int, wanted: int) -> tuple[int, int]:
    """Where the line ends in which byte `begin + wanted` lies, and how many lines there are up to it."""
    file.seek(begin)
    lines = 0
    left = wanted
    while left > 0 and (read := file.read(min(left, _READ_BYTES))):
        lines += read.count(b"\n")
        left -= len(read)
    rest = file.readline(MAX_LINE_BYTES + 1)
    if len(rest) > MAX_LINE_BYTES:
        raise StoreRefusedError(
            f"File '{Path(file.name).name}': the line after byte {begin} is longer than {MAX_LINE_BYTES} bytes. "
            "Write one conversation a line."
        )
    if rest or (file.tell() > begin and not _ends_a_line(file)):
        lines += 1
    return file.tell(), lines


def _ends_a_line(file: io.BufferedReader) -> bool:
    file.seek(-1, io.SEEK_CUR)
    return file.read(1) == b"\n"


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() in (".gz", ".zst")


def _objects(source: Input, chunk: Chunk) -> Iterator[dict[str, Any] | RowError]:
    if _is_compressed(source.directory / chunk.path):
        lines = json_lines(LocalFiles(root=source.directory).open(chunk.path))
        yield from (_object(line) for _, line in islice(lines, chunk.begin, chunk.end))
        return
    with (source.directory / chunk.path).open("rb") as file:
        file.seek(chunk.begin)
        for line in io.BytesIO(file.read(chunk.end - chunk.begin)):
            yield _object(line)


def _object(line: bytes) -> dict[str, Any] | RowError:
    if len(line.rstrip(b"\n")) > MAX_LINE_BYTES:
        return RowError(f"it is longer than {MAX_LINE_BYTES} bytes")
    try:
        value = orjson.loads(line)
    except (ValueError, RecursionError) as error:
        return RowError(f"it is no JSON ({error})")
    return value if isinstance(value, dict) else RowError(f"it is {type(value).__name__}, not a JSON object")


def _records(source: Input, chunk: Chunk) -> Iterator[dict[str, Any]]:
    read = parquet_rows if source.format == "parquet" else arrow_rows
    return read(source.directory / chunk.path, chunk.block, chunk.begin, chunk.end)
