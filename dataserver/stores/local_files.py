"""A store on a local disk.

Links to files are followed and, where they lead out of the store, reported. Links to directories
are refused: they may form loops.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dataserver.errors import InternalError, StoreRefusedError
from dataserver.stores.files import FileStamp, ShardFiles, is_hidden
from dataserver.stores.index import file_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSource:
    """A file on a local disk; see `files.ByteSource`. Holds no descriptor between two reads."""

    name: str
    size: int
    local_path: Path

    def read(self, begin: int, end: int) -> bytes:
        """See `files.ByteSource`."""
        with self.local_path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), end - begin, begin)


def local_digest(files: ShardFiles, path: str) -> str:
    """XXH3-128, in hex, of a file that is on a local disk."""
    source = files.open(path)
    if source.local_path is None:
        raise InternalError(f"'{path}' of '{files.name}' is not on a local disk")
    return file_digest(source.local_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFiles:
    """Files below the directory `root`; see `files.StoreFiles`."""

    root: Path

    watched = True

    @property
    def name(self) -> str:
        """See `files.StoreFiles`."""
        return str(self.root)

    def walk(self) -> Iterator[str]:
        """See `files.StoreFiles`."""
        return self._walk("")

    def top(self) -> list[str]:
        """See `files.StoreFiles`."""
        return sorted(entry.name for entry in self.root.iterdir())

    def is_file(self, path: str) -> bool:
        """See `files.StoreFiles`."""
        return (self.root / path).is_file()

    def stat(self, path: str) -> FileStamp:
        """See `files.StoreFiles`. Links are followed."""
        found = (self.root / path).stat()
        version = f"modified {found.st_mtime_ns} ns, inode {found.st_ino}"
        return FileStamp(size=found.st_size, version=version, changed_ns=found.st_ctime_ns)

    def open(self, path: str) -> LocalSource:
        """See `files.StoreFiles`."""
        local_path = self.root / path
        return LocalSource(name=path, size=local_path.stat().st_size, local_path=local_path)

    def links_out(self, paths: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """See `files.StoreFiles`."""
        inside = self.root.resolve()
        targets = [(path, (self.root / path).resolve()) for path in paths]
        return tuple((path, str(target)) for path, target in targets if not target.is_relative_to(inside))

    def _walk(self, below: str) -> Iterator[str]:
        with os.scandir(self.root / below) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            relative = f"{below}/{entry.name}" if below else entry.name
            if not entry.is_dir():
                yield relative
            elif is_hidden(entry.name):
                yield f"{relative}/"
            elif entry.is_symlink():
                raise StoreRefusedError(
                    f"'{relative}' in '{self.root}' is a link to a directory, which is not followed. "
                    "Move the directory into the store, or name it as a store of its own."
                )
            else:
                yield from self._walk(relative)
