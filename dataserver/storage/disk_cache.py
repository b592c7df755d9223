"""Ranges of objects on a local disk, fetched once, within one bound of bytes for all processes.

    get(key) ── another thread fetches it ──> its result
             ├─ entry there, and it agrees ──> mapped
             └─ no ──> fetch ──> digest as in the manifest? ──> entry written, synced, renamed ──> bytes
                                  └ no: StoreDamagedError

The directory may be shared by any number of processes of one machine, and deleted at any time. What
is kept is named by the object's version, so a store that changes is never served from old entries. A
disk that fails or is full makes reads slower, never wrong: they go past the cache, and the log says so.
"""

import errno
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from dataserver.errors import InvalidConfigError, StoreDamagedError
from dataserver.storage.cache_entry import (
    Buffer,
    CacheKey,
    DamagedEntryError,
    digest_of,
    entry_bytes,
    read_entry,
    write_entry,
)
from dataserver.storage.cache_space import CacheSpace

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFigures:
    """What a process's reads through the cache came to.

    `hits` were there, `misses` were fetched. `damaged` entries no longer agreed with their digest;
    `uncached` is how often the cache could not be read or written.
    """

    hits: int = 0
    misses: int = 0
    uncached: int = 0
    damaged: int = 0


class DiskCache:
    """At most `limit_bytes` below `directory`, the least recently used given up first. Safe between threads.

    `counted` is told the name of each of `CacheFigures` as it grows.
    """

    def __init__(self, directory: Path, limit_bytes: int, *, counted: Callable[[str], object] = lambda _: None) -> None:
        self.directory = directory
        self._counted = counted
        self.limit_bytes = limit_bytes
        self.figures = CacheFigures()
        self._space = CacheSpace(directory, limit_bytes)
        self._lock = threading.Lock()
        self._under_way: dict[CacheKey, Future[Buffer]] = {}
        self._ailing = False

    def check_fits(self, key: CacheKey) -> None:
        """Raise `InvalidConfigError` if the cache could not hold even this range alone."""
        needed = entry_bytes(key)
        if needed > self.limit_bytes:
            raise InvalidConfigError(
                f"The disk cache '{self.directory}' may hold {self.limit_bytes:,} bytes, but {key} alone take "
                f"{needed:,}: raise its limit to several times that."
            )

    def get(self, key: CacheKey, digest: str | None, fetch: Callable[[], bytes]) -> Buffer:
        """The bytes of `key`, from `fetch` if they are not there.

        What comes may be a map that several callers share: let go of it when you are done, and do not close it.

        `digest`: XXH3-128 that they must have, in hexadecimal, if it is known. Raises what `fetch` raises,
        `StoreDamagedError` if what was fetched is not what the key says, and what `check_fits` raises.
        """
        self.check_fits(key)
        if key.size == 0:
            return b""
        with self._lock:
            result = self._under_way.get(key)
            if result is None:
                mine: Future[Buffer] = Future()
                self._under_way[key] = mine
        if result is not None:
            return result.result()
        try:
            found = self._find(key, digest)
            data = self._fetch(key, digest, fetch) if found is None else found
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(data)
            return data
        finally:
            with self._lock:
                del self._under_way[key]

    def _find(self, key: CacheKey, digest: str | None) -> Buffer | None:
        try:
            return self._read(key, digest)
        except OSError as error:
            self._pass_by(error)
            return None

    def _read(self, key: CacheKey, digest: str | None) -> Buffer | None:
        try:
            data = read_entry(self._space.entry(key.name), key, digest)
        except DamagedEntryError as error:
            _log.warning("disk cache '%s': %s are damaged (%s): fetched anew", self.directory, key, error)
            self._count("damaged")
            self._space.drop(key.name, error.inode)
            return None
        if data is not None:
            self._count("hits")
        return data

    def _fetch(self, key: CacheKey, digest: str | None, fetch: Callable[[], bytes]) -> bytes:
        data = fetch()
        self._count("misses")
        found = digest_of(data)
        if len(data) != key.size or (digest is not None and found.hex() != digest):
            raise StoreDamagedError(
                f"{key} came as {len(data):,} bytes with the digest {found.hex()}, not as {key.size:,} with "
                f"{digest or 'any'}: the object is not the one that was admitted."
            )
        try:
            self._keep(key, data, found)
        except OSError as error:
            self._pass_by(error)
        return data

    def _keep(self, key: CacheKey, data: bytes, digest: bytes) -> None:
        reservation = self._space.reserve(entry_bytes(key))
        if reservation is None:
            raise OSError(errno.ENOSPC, "everything in it is in use")
        try:
            write_entry(reservation.descriptor, key, data, digest)
        except BaseException:
            self._space.cancel(reservation)
            raise
        self._space.publish(reservation, key.name)
        self._ailing = False

    def _pass_by(self, error: OSError) -> None:
        """Do without the cache this time; say so when it begins."""
        self._count("uncached")
        if not self._ailing:
            self._ailing = True
            _log.error(
                "disk cache '%s' cannot be used (%s): until it can, reads go past it and are slower",
                self.directory,
                error.strerror or error,
            )

    def _count(self, name: str) -> None:
        with self._lock:
            self.figures = replace(self.figures, **{name: getattr(self.figures, name) + 1})
        self._counted(name)
