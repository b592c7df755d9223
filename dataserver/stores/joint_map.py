"""Files mapped by the system itself: one behind the other as one buffer, or one alone.

    reserve addresses for all ──> map each file over its part ──> byte b of file f lies at begins[f] + b

So a store of many shards is read like one of one shard: where rows lie is computed over all of them at once. And no
file stays open, whereas every map of Python's own keeps a descriptor.
"""

import ctypes
import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import StoreDamagedError

# Of <sys/mman.h>, on Linux and macOS alike; Python names neither.
_MAP_FIXED: Final = 0x10
_PROT_NONE: Final = 0


def map_jointly(files: Sequence[tuple[Path, int]]) -> tuple[memoryview, NDArray[np.int64]]:
    """A read-only buffer over `files`, paths with their sizes, none empty; and where each begins, int64[n].

    What lies between them must not be touched. The maps last as long as any view of the buffer. Raises `OSError`, and
    `StoreDamagedError` for a file of another size: reading behind a file's end would end the process.
    """
    sizes = np.array([size for _, size in files], dtype=np.int64)
    room = -(-sizes // mmap.PAGESIZE) * mmap.PAGESIZE
    ends = np.cumsum(room)
    begins = ends - room
    total = int(ends[-1])
    address = _map(None, total, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    data = _buffer(address, total)
    for (path, size), begin in zip(files, begins.tolist(), strict=True):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.fstat(file).st_size
            if found != size:
                raise StoreDamagedError(f"The shard '{path}' had {size} bytes when it was admitted and has {found}.")
            _map(address + begin, size, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, file)
        finally:
            os.close(file)
    return data, begins


def map_alone(file: int, size: int) -> memoryview:
    """A read-only buffer over the first `size` bytes of the open file `file`, at least one, which may be closed then.

    The map lasts as long as any view of the buffer. Raises `OSError`.
    """
    return _buffer(_map(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file), size)


def _buffer(address: int, size: int) -> memoryview:
    """What is mapped there, until nobody looks at it any more."""
    buffer = (ctypes.c_ubyte * size).from_address(address)
    # Not when the interpreter ends: threads may still be reading then.
    weakref.finalize(buffer, _libc().munmap, ctypes.c_void_p(address), ctypes.c_size_t(size)).atexit = False
    return memoryview(buffer).cast("B").toreadonly()


def _map(address: int | None, size: int, protection: int, flags: int, file: int) -> int:
    found = _libc().mmap(address, size, protection, flags, file, 0)
    if found in (None, ctypes.c_void_p(-1).value):
        code = ctypes.get_errno()
        raise OSError(code, f"cannot map {size} bytes: {os.strerror(code)}")
    return int(found)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong)
    return libc
