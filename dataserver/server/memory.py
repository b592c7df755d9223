"""How a serving process treats memory: keep what messages are made of, and leave what never dies out of collections.

A micro-batch is some megabytes that live for milliseconds. glibc gives such blocks back to the kernel and takes them
again, zeroed page by page, which costs more than filling them. And Python's garbage collector would look at every
imported module, again and again.
"""

import ctypes
import gc
import sys
from typing import Final

# From glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

# Blocks up to this come from the heap; larger ones, decoded row groups say, go back to the kernel at once.
_LARGEST_KEPT_BYTES: Final = 32 << 20

# Free memory at the top of the heap that is kept: the messages under way of many streams. There is one heap for all
# threads, or each would keep as much.
_KEPT_BYTES: Final = 256 << 20

# Objects that come to be before the youngest generation is looked at: more than a plan or a message makes.
_YOUNG_OBJECTS: Final = 50_000


def settle() -> None:
    """Call once everything is imported and admitted. Without glibc only the collector is set."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "gnu_get_libc_version"):
            libc.mallopt(_M_ARENA_MAX, 1)
            libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
            libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
