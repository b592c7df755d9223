"""The bytes of a cache directory: bounded over all processes that fill it.

    <directory>/usage          bytes counted; every change is made while this file is locked
    <directory>/entries/       whole entries
    <directory>/partial/       entries being written, each locked by its writer

    reserve ──> partial/… of the full size, counted ──> written ──> publish: renamed into entries/
                                                          └── cancel: removed, counted off

A killed process leaves neither lock nor leak: the kernel lets its locks go, a count that was being
changed is marked as unknown and made anew from the directory, and partial files whose writer is gone
are swept by the next scan. Scans happen when a process first comes, when the count is unknown, and
when room is made; making room frees a tenth of the limit, so that they are rare.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dataserver.storage.file_locks import lock, lock_now

_UNKNOWN = -1
_COUNT_BYTES = 8
_FREED_SHARE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Counted bytes, and the partial file that stands for them."""

    path: Path
    descriptor: int
    size: int


class CacheSpace:
    """Reserves, publishes and frees bytes below `directory`. Safe between threads and processes.

    Every method may raise `OSError`. Times of use are those of the files (`st_mtime`).
    """

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._usage = directory / "usage"
        self._entries = directory / "entries"
        self._partial = directory / "partial"
        self._scanned = False

    def entry(self, name: str) -> Path:
        """Where the entry of that name lies, if it is there."""
        return self._entries / name

    def counted_bytes(self) -> int:
        """Bytes of entries and reservations."""
        with self._counting() as count:
            return count.bytes

    def reserve(self, size: int) -> Reservation | None:
        """Count `size` bytes before they are written; None if everything that could make room is in use."""
        with self._counting() as count:
            if not self._make_room(count, size):
                return None
            path = self._partial / f"{os.getpid()}-{uuid.uuid4().hex}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            count.bytes += size
            try:
                lock(descriptor)
                os.truncate(descriptor, size)
            except OSError:
                os.close(descriptor)
                raise
            return Reservation(path=path, descriptor=descriptor, size=size)

    def publish(self, reservation: Reservation, name: str) -> None:
        """Give a written entry its name, unless another process was first."""
        with self._ending(reservation) as count:
            if self.entry(name).exists():
                reservation.path.unlink(missing_ok=True)
                count.bytes -= reservation.size
            else:
                reservation.path.rename(self.entry(name))

    def cancel(self, reservation: Reservation) -> None:
        """Give the bytes back."""
        with self._ending(reservation) as count:
            reservation.path.unlink(missing_ok=True)
            count.bytes -= reservation.size

    def drop(self, name: str, inode: int) -> None:
        """Remove a damaged entry, unless another one has taken its name since."""
        with self._counting() as count:
            with suppress(FileNotFoundError):
                if self.entry(name).stat().st_ino == inode:
                    self.entry(name).unlink()
            # Its size may have been among what was damaged.
            self._scan(count)

    @contextmanager
    def _counting(self) -> Iterator["_Count"]:
        """Lock the count; what the block makes of it holds from then on, unless the block does not end."""
        with self._locked() as descriptor:
            data = os.pread(descriptor, _COUNT_BYTES, 0)
            known = int.from_bytes(data, "little", signed=True) if len(data) == _COUNT_BYTES else _UNKNOWN
            os.pwrite(descriptor, _UNKNOWN.to_bytes(_COUNT_BYTES, "little", signed=True), 0)
            count = _Count(known)
            if known < 0 or not self._scanned:
                self._scan(count)
                self._scanned = True
            yield count
            os.pwrite(descriptor, count.bytes.to_bytes(_COUNT_BYTES, "little", signed=True), 0)

    @contextmanager
    def _ending(self, reservation: Reservation) -> Iterator["_Count"]:
        """Count, and only then let go of the lock by which a scan sees that the partial file is alive."""
        try:
            with self._counting() as count:
                yield count
        finally:
            os.close(reservation.descriptor)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        for folder in (self._entries, self._partial):
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._usage, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            lock(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)

    def _make_room(self, count: "_Count", size: int) -> bool:
        """Remove the least recently used entries that nobody has open, until there is room or none is left."""
        if count.bytes + size <= self.limit_bytes:
            return True
        wanted = min(self.limit_bytes - size, self.limit_bytes - self.limit_bytes // _FREED_SHARE)
        for entry in sorted(self._scan(count)):
            if count.bytes <= wanted:
                break
            if _removed(entry.path):
                count.bytes -= entry.size
        return count.bytes + size <= self.limit_bytes

    def _scan(self, count: "_Count") -> list["_Entry"]:
        """Count anew what is there, and sweep what killed processes were writing. Returns the entries."""
        partial = [found for found in _files(self._partial) if not _removed(found.path)]
        entries = _files(self._entries)
        count.bytes = sum(found.size for found in (*partial, *entries))
        return entries


class _Entry(NamedTuple):
    used_ns: int
    size: int
    path: str


class _Count:
    __slots__ = ("bytes",)

    def __init__(self, known: int) -> None:
        self.bytes = known


def _files(folder: Path) -> list[_Entry]:
    found = []
    with os.scandir(folder) as files:
        for file in files:
            with suppress(FileNotFoundError):  # somebody empties the directory by hand
                status = file.stat()
                found.append(_Entry(status.st_mtime_ns, status.st_size, file.path))
    return found


def _removed(path: str) -> bool:
    """Remove a file, unless somebody reads or writes it: they hold a lock on it as long as they live."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        if not lock_now(descriptor):
            return False
        Path(path).unlink(missing_ok=True)
    finally:
        os.close(descriptor)
    return True
