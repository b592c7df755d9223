"""What glibc does with freed memory: keep it for the next message.

A message is a megabyte or more that lives for milliseconds. Left alone, glibc gives such blocks back to the kernel and
takes them again, zeroed page by page, which costs more than moving the bytes: two thirds of what receiving them takes.
"""

import ctypes
import functools
import os
import sys
from typing import Final

# From glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

# Blocks up to this come from the heap; larger ones go back to the kernel at once. The most that glibc takes.
_LARGEST_KEPT_BYTES: Final = 32 << 20

# Free memory at the top of a heap that is kept: the messages under way of many streams.
_KEPT_BYTES: Final = 256 << 20


@functools.cache
def keep_freed_memory() -> None:
    """Tell glibc, once a process. Elsewhere, and where the environment says what to do with memory, nothing is done."""
    if libc := _libc():
        # One without the other does nothing: to set either ends glibc's own choice of both.
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


@functools.cache
def use_one_heap() -> None:
    """The same for one heap for all threads, which then wait for each other but do not each keep as much."""
    if libc := _libc():
        libc.mallopt(_M_ARENA_MAX, 1)


def _libc() -> ctypes.CDLL | None:
    """Glibc, where it may be told anything."""
    told = any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.getenv("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or told:
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
