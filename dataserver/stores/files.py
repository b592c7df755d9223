"""What a store asks of the place where its files lie.

    StoreFiles ── walk() ──────> which files there are
               ├─ stat(path) ──> FileStamp   is it still the file that was admitted?
               └─ open(path) ──> ByteSource  its bytes, at any place

Implemented by `local_files` and `remote_files`; nothing else knows whether a store lies on a local disk.
"""

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

Bytes: TypeAlias = "bytes | mmap.mmap"
"""What a read returns: slices of it are bytes."""

Span: TypeAlias = tuple[int, int]
"""First byte, and the byte after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStamp:
    """What tells a file from a later one of its name. `version` is opaque: only equality counts.

    `changed_ns`: when anything of a local file was changed last (ctime), in ns; 0 elsewhere. Nobody can set it back, as
    they can the rest; but a link or other permissions move it too, so it is no part of equality. Where it moved alone,
    the contents decide.
    """

    size: int
    version: str
    changed_ns: int = field(default=0, compare=False)

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

    def read(self, begin: int, end: int) -> Bytes:
        """Bytes `begin` up to `end`, fewer only where a local file ends. Raises `OSError`, `DataServerError`."""


class ShardFiles(Protocol):
    """The files of a store, as far as serving its rows needs them."""

    @property
    def name(self) -> str:
        """Where they are, for messages."""

    @property
    def watched(self) -> bool:
        """Whether a file could change under its reader unnoticed, so that its stamp must be looked at now and then."""

    def stat(self, path: str) -> FileStamp:
        """What stands at `path` now. Raises `OSError`, `DataServerError`."""

    def open(self, path: str) -> ByteSource:
        """What is read of the file at `path`. Raises `OSError`, `DataServerError`."""


class StoreFiles(ShardFiles, Protocol):
    """The files of a store by paths relative to it."""

    def walk(self) -> Iterator[str]:
        """All files, however deep; a hidden directory once, with a `/` at its end. Raises `StoreRefusedError`."""

    def top(self) -> Sequence[str]:
        """Names of the files and directories of the uppermost level, sorted."""

    def is_file(self, path: str) -> bool:
        """Whether a file that can be read stands at `path`."""

    def links_out(self, paths: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Those of `paths` that lead out of the store, each with where it leads."""


def is_hidden(name: str) -> bool:
    """Whether a file or directory of this name is no data."""
    return name.startswith((".", "_"))
