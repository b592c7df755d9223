"""What of an index directory was opened last when, and the removal of what nobody opened for long.

    opening ──mark_used──> the time of its directory
    prune ──> what is older goes: derived data, which whoever wants it builds anew

Rendered stores, which lie below the index directory too, are stores and no index: they stay.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Directories whose entries are derived from stores, and one by one can do without the others.
_KINDS = ("manifests", "stores", "views", "lazy", "copies", "shards")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """A part of an index: `size` in bytes as they lie on the disk, `opened`: when last, in Unix seconds."""

    path: Path
    size: int
    opened: float


def mark_used(path: Path) -> None:
    """Note that an entry is opened now, where it can be written to."""
    with suppress(OSError):
        os.utime(path)


def prune(root: Path, *, older_than: float) -> tuple[list[IndexEntry], list[IndexEntry]]:
    """Remove what was last opened before `older_than`, in Unix seconds; what went and what stays, oldest first.

    Safe beside processes that use the directory: what they have open stays open, and the rest is built anew. Raises
    `OSError`.
    """
    found = sorted(_entries(root), key=lambda entry: entry.opened)
    old = [entry for entry in found if entry.opened < older_than]
    for entry in old:
        if entry.path.is_dir():
            shutil.rmtree(entry.path)
        else:
            entry.path.unlink()
    return old, found[len(old) :]


def _entries(root: Path) -> Iterator[IndexEntry]:
    for kind in _KINDS:
        for path in sorted((root / kind).glob("*")):
            with suppress(FileNotFoundError):  # another process removed or replaced it
                files = path.iterdir() if path.is_dir() else (path,)
                size = sum(file.stat().st_blocks * 512 for file in files)
                yield IndexEntry(path=path, size=size, opened=path.stat().st_mtime)
