"""A file of a store as Arrow opens it: by its path where it is local, through its `ByteSource` where it is not."""

import io

import pyarrow as pa

from dataserver.stores.files import ByteSource


def arrow_input(source: ByteSource) -> "str | pa.NativeFile":
    """What Arrow's readers take; whoever opens it closes it."""
    if source.local_path is not None:
        return str(source.local_path)
    return pa.PythonFile(_SourceFile(source), mode="r")


class _SourceFile(io.RawIOBase):
    """A read position in a source."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        end = self._source.size if size < 0 else min(self._at + size, self._source.size)
        data = self._source.read(self._at, end) if end > self._at else b""
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
