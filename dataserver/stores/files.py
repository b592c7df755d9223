"""Where the files of a store lie, and how their bytes are read.

    StoreFiles ── stat(path) ──> FileStamp   is it still the file that was admitted?
               └─ open(path) ──> ByteSource  its bytes, at any place

Nothing above this module knows whether a store lies on a local disk.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStamp:
    """What tells a file from a later one of its name. `version` is opaque: only equality counts."""

    size: int
    version: str

    def __str__(self) -> str:
        return f"{self.size} bytes, {self.version}"


class ByteSource(Protocol):
    """The bytes of one file. Safe to use from several threads."""

    @property
    def name(self) -> str:
        """The file's path relative to its store, for messages."""

    @property
    def size(self) -> int:
        """Bytes of the file when it was opened."""

    @property
    def local_path(self) -> Path | None:
        """Where the file can be mapped; None where it can only be read."""

    def read(self, begin: int, end: int) -> bytes:
        """Bytes `begin` up to `end`, fewer only where the file ends. Raises `OSError`."""


class StoreFiles(Protocol):
    """The files of a store by paths relative to it."""

    @property
    def name(self) -> str:
        """Where they are, for messages."""

    def stat(self, path: str) -> FileStamp:
        """What stands at `path` now. Raises `OSError`."""

    def open(self, path: str) -> ByteSource:
        """The file at `path`. Raises `OSError`."""


@dataclass(frozen=True, kw_only=True)
class LocalSource:
    """A file on a local disk; see `ByteSource`. Holds no descriptor between two reads."""

    name: str
    size: int
    local_path: Path

    def read(self, begin: int, end: int) -> bytes:
        """See `ByteSource`."""
        with self.local_path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), end - begin, begin)


@dataclass(frozen=True, kw_only=True)
class LocalFiles:
    """Files below a local directory; see `StoreFiles`."""

    root: Path

    @cached_property
    def name(self) -> str:
        """See `StoreFiles`."""
        return str(self.root)

    def stat(self, path: str) -> FileStamp:
        """See `StoreFiles`. Links are followed."""
        found = (self.root / path).stat()
        return FileStamp(size=found.st_size, version=f"modified {found.st_mtime_ns} ns, inode {found.st_ino}")

    def open(self, path: str) -> LocalSource:
        """See `StoreFiles`."""
        local_path = self.root / path
        return LocalSource(name=path, size=local_path.stat().st_size, local_path=local_path)
