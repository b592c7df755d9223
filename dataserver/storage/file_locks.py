"""Locks between processes, by the kernel: a process that is killed holds none, and leaves nothing behind.

For local disks; what network file systems make of them is not to be trusted.
"""

import fcntl
from typing import BinaryIO


def lock(file: int | BinaryIO) -> None:
    """Hold an open file, or its descriptor, by oneself until it is closed; waits for whoever holds it."""
    fcntl.flock(file, fcntl.LOCK_EX)


def lock_now(file: int | BinaryIO, *, shared: bool = False) -> bool:
    """`lock` if nobody holds it, or nobody by themselves where it is `shared`; whether it is held now."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
