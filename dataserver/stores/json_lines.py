"""The lines of a JSON Lines file, plain or compressed, one at a time.

    bytes ──gzip, zstd──> chunks of CHUNK_BYTES ──> lines, numbered from 1

Memory is bounded by a chunk and the longest line, however much comes out of a compressed file. A file that ends in
the middle, of its compression or of a line, is refused: it would have fewer rows than were written.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Literal

import pyarrow as pa

from dataserver.errors import StoreRefusedError
from dataserver.stores.arrow_input import arrow_input
from dataserver.stores.files import ByteSource

CHUNK_BYTES = 1 << 20

# A row of some 10 million tokens. Longer is no row, but a file without line ends, or one made to fill the memory.
MAX_LINE_BYTES = 1 << 26

_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
_SUFFIXES: dict[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
_BOM = b"\xef\xbb\xbf"


def json_lines(source: ByteSource, done: Callable[[int], None] = lambda _: None) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of every line, without its end; `done` is called with bytes of the file gone through.

    Raises `StoreRefusedError` naming file and line.
    """
    number = rest_bytes = 0
    rest: list[bytes] = []
    for chunk in _chunks(source, done):
        first, *more = chunk.split(b"\n")
        rest.append(first)
        rest_bytes += len(first)
        if rest_bytes > MAX_LINE_BYTES:
            raise line_refusal(source, number + 1, f"it is longer than {MAX_LINE_BYTES} bytes. Write one row a line.")
        for following in more:
            number += 1
            yield number, b"".join(rest)
            rest, rest_bytes = [following], len(following)
    if rest_bytes:
        yield number + 1, b"".join(rest)


def line_refusal(source: ByteSource, line: int, problem: str, *, column: str | int = "") -> StoreRefusedError:
    """The error for one line; `problem`: whole sentences, `column`: a column's name, or a place in the line, from 1."""
    where = f", column {column if isinstance(column, int) else repr(column)}" if column else ""
    details: dict[str, str | int] = {"column": column} if column else {}
    return StoreRefusedError(
        f"Shard '{source.name}', line {line}{where}: {problem}",
        shard=source.name,
        line=line,
        **details,
    )


def _chunks(source: ByteSource, done: Callable[[int], None]) -> Iterator[bytes]:
    compression = next((kind for suffix, kind in _SUFFIXES.items() if source.name.lower().endswith(suffix)), None)
    _check_head(source, compression)
    lines = seen = 0
    with ExitStack() as stack:
        raw = file = stack.enter_context(_opened(source))
        if compression is not None:
            file = stack.enter_context(pa.CompressedInputStream(file, compression))
        while True:
            try:
                chunk = file.read(CHUNK_BYTES)
            except OSError as error:
                raise line_refusal(
                    source, lines + 1, f"the file cannot be read on ({error}). Was it cut off, or is it damaged?"
                ) from error
            done(raw.tell() - seen)
            seen = raw.tell()
            if not chunk:
                return
            lines += chunk.count(b"\n")
            yield chunk


def _opened(source: ByteSource) -> pa.NativeFile:
    found = arrow_input(source)
    return pa.OSFile(found, "rb") if isinstance(found, str) else found


def _check_head(source: ByteSource, compression: str | None) -> None:
    """What the name says must be what the first bytes say."""
    head = source.read(0, min(4, source.size))[:] if source.size else b""
    found = next((kind for kind, magic in _MAGIC.items() if head.startswith(magic)), None)
    if found != compression:
        named = "like plain text" if compression is None else f"like a {compression} file"
        is_what = f"{found} data" if found else "something else" if head else "nothing, not even a header"
        raise StoreRefusedError(
            f"Shard '{source.name}' is named {named} and holds {is_what}. "
            "Let the names of compressed files end in .gz or .zst, and of no others.",
            shard=source.name,
        )
    if head.startswith(_BOM):
        raise line_refusal(source, 1, "it begins with a byte order mark. Write UTF-8 without one.", column=1)
