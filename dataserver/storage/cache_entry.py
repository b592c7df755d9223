"""One entry of the disk cache: a file that holds the bytes first, and then what they are.

    bytes of the object | key as JSON | digest, 16 bytes | length of bytes, length of key, mark

The bytes begin at 0, so they can be mapped. An entry is believed only if its size, its key and the
XXH3-128 of its bytes agree, each time it is opened: what a disk changed is never served.
"""

import json
import mmap
import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

import xxhash

from dataserver.storage.file_locks import lock_now

Buffer = bytes | mmap.mmap

_END = struct.Struct("<16sQQ8s")
_MARK = b"DSCACHE1"

# Below this a copy is cheaper than a map, which holds a file descriptor as long as it lives.
_MAPPED_FROM_BYTES = 1 << 20


class CacheKey(NamedTuple):
    """A range of one version of an object: bytes `begin` up to `end` of `path` below `url`."""

    url: str
    path: str
    version: str
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Bytes in the range."""
        return self.end - self.begin

    @property
    def name(self) -> str:
        """Name of the entry's file."""
        return xxhash.xxh3_128_hexdigest(self.encoded)

    @property
    def encoded(self) -> bytes:
        """The key as it stands in the entry."""
        return json.dumps(self).encode()

    def __str__(self) -> str:
        return f"bytes {self.begin:,} to {self.end:,} of '{self.url}/{self.path}'"


class DamagedEntryError(Exception):
    """An entry does not hold what was put there."""

    def __init__(self, message: str, inode: int) -> None:
        super().__init__(message)
        self.inode = inode


def entry_bytes(key: CacheKey) -> int:
    """What an entry takes on disk."""
    return key.size + len(key.encoded) + _END.size


def digest_of(data: Buffer) -> bytes:
    """XXH3-128 of `data`; other threads go on meanwhile, as they do not with the library's one-shot function."""
    hasher = xxhash.xxh3_128()
    hasher.update(data)
    return hasher.digest()


def write_entry(descriptor: int, key: CacheKey, data: bytes, digest: bytes) -> None:
    """Fill an empty file, and wait until the disk has it. `digest`: XXH3-128 of `data`."""
    end = _END.pack(digest, len(data), len(key.encoded), _MARK)
    for part in (data, key.encoded + end):
        left = memoryview(part)
        while left:
            left = left[os.write(descriptor, left) :]
    os.fsync(descriptor)


def read_entry(path: Path, key: CacheKey, digest: str | None) -> Buffer | None:
    """The bytes of the entry at `path`, checked; None if there is none. Marks it as just used.

    A map keeps a shared lock on its file, by which whoever makes room sees that it is in use. Should the
    file go nonetheless, Linux keeps its bytes until the map is gone. Raises `DamagedEntryError`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Not granted only while the entry is being removed, which does not harm who has it open.
        lock_now(descriptor, shared=True)
        data = _checked(descriptor, key, digest)
        now = time.time_ns()
        os.utime(descriptor, ns=(now, now))
        return data
    finally:
        os.close(descriptor)


def _checked(descriptor: int, key: CacheKey, digest: str | None) -> Buffer:
    status = os.fstat(descriptor)
    if status.st_size != entry_bytes(key):
        raise DamagedEntryError(f"it has {status.st_size:,} bytes instead of {entry_bytes(key):,}", status.st_ino)
    trailer = os.pread(descriptor, status.st_size - key.size, key.size)
    kept, size, key_size, mark = _END.unpack(trailer[-_END.size :])
    if mark != _MARK or size != key.size or key_size != len(key.encoded) or trailer[: -_END.size] != key.encoded:
        raise DamagedEntryError("its end is not what was written", status.st_ino)
    data: Buffer
    if key.size < _MAPPED_FROM_BYTES:
        data = os.pread(descriptor, key.size, 0)
    else:
        data = mmap.mmap(descriptor, key.size, access=mmap.ACCESS_READ)
    found = digest_of(data)
    if found != kept:
        raise DamagedEntryError("its bytes have another digest than when they were written", status.st_ino)
    if digest is not None and found.hex() != digest:
        raise DamagedEntryError("its bytes have another digest than the manifest", status.st_ino)
    return data
