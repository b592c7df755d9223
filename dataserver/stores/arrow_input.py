"""A file of a store as Arrow opens it: by its path where it is local, through its `ByteSource` or pieces where not."""

import io
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from dataserver.stores.files import Bytes, ByteSource, Span


def arrow_input(source: ByteSource) -> "str | pa.NativeFile":
    """What Arrow's readers take; whoever opens it closes it."""
    if source.local_path is not None:
        return str(source.local_path)
    return pa.PythonFile(_SourceFile(source), mode="r")


def open_pieces(size: int, pieces: Sequence[tuple[Span, Bytes]]) -> pa.NativeFile:
    """A file of `size` bytes of which `pieces` are at hand; a read of others raises `OSError`. Whoever opens closes."""
    return pa.PythonFile(_SourceFile(_Pieces(size, pieces)), mode="r")


class _Readable(Protocol):
    @property
    def size(self) -> int: ...

    def read(self, begin: int, end: int) -> Bytes: ...


class _Pieces:
    """Some ranges of a file, in memory."""

    def __init__(self, size: int, pieces: Sequence[tuple[Span, Bytes]]) -> None:
        self.size = size
        self._pieces = pieces

    def read(self, begin: int, end: int) -> bytes:
        for (first, last), data in self._pieces:
            if first <= begin and end <= last:
                return data[begin - first : end - first]
        raise OSError(f"bytes {begin} to {end} are in none of its chunks")


class _SourceFile(io.RawIOBase):
    """A read position in a source."""

    def __init__(self, source: _Readable) -> None:
        self._source = source
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        end = self._source.size if size < 0 else min(self._at + size, self._source.size)
        data = self._source.read(self._at, end)[:] if end > self._at else b""
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        self._at = begin + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
