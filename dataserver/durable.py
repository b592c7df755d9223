"""Files that are still there, and whole, after the machine went down."""

import os
from pathlib import Path
from typing import Final

TEMPORARY: Final = ".{}.tmp"


def write_durably(path: Path, *parts: bytes | memoryview) -> None:
    """Write a file that has its name only once all of `parts` are on the disk. One writer a name at a time.

    That the name lasts too, `flush_to_disk` of the directory sees to.
    """
    temporary = path.with_name(TEMPORARY.format(path.name))
    with temporary.open("wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def flush_to_disk(path: Path) -> None:
    """Wait until the disk has the bytes of a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
