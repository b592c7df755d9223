"""The index directory: derived data, deletable at any time, shared by any number of processes.

    <root>/manifests/<key>.json        what was admitted at a path; key = hash of path and mask mode
    <root>/stores/<fingerprint>/       arrays of a store, named by its content
    <root>/shards/<key>/               what a pass that is not done yet found out about a shard
    <root>/views/<fingerprint>-…/      arrays of a store cut to a longest sample
    <root>/lazy/<fingerprint>-…/       arrays of a lazily admitted store, filled block by block
    <root>/.building-<process>-<n>/    being written; moved to its name when whole

Arrays are raw little-endian numbers, memory-mapped. What carries a name is whole: everything is
written under a temporary name of the process, synced, and renamed. Of two processes that build
the same at once, the first to rename wins and the other drops its copy, which is equal.

Every file is read against an XXH3-128 of what was written, whenever it is opened: a flipped bit
in it would serve a neighbour's tokens. Arrays have theirs in the JSON that leads to them, JSON
carries its own. Checking takes 0.1 to 0.2 s for each GB that lies in the page cache, and a store
of 10^8 rows has 1.2 GB. What does not agree counts as not there, and is built anew.
"""

import errno
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from dataserver.durable import flush_to_disk
from dataserver.errors import InternalError, InvalidConfigError
from dataserver.stores.joint_map import map_alone

# A build directory in which nothing was written for so long belongs to a process that was killed.
_STALE_AFTER_S = 86_400.0
_DIGEST_BYTES = 1 << 20
_BUILDING = ".building-"

# Several processes may find a broken directory at once, and each may replace it.
_MOVE_TRIES = 8


def default_index_dir() -> Path:
    """Where indexes go unless a directory is given."""
    return Path.home() / ".cache" / "dataserver" / "index"


class Building:
    """A directory of arrays under construction; `publish` gives it its name, leaving the block drops it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.path = root / f"{_BUILDING}{os.getpid()}-{uuid.uuid4().hex}"
        self._files: dict[str, BinaryIO] = {}
        self._hashes: dict[str, xxhash.xxh3_128] = {}

    def __enter__(self) -> Self:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            _sweep(self._root)
            self.path.mkdir()
        except OSError as error:
            raise unwritable(self._root, error) from error
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._close_files()
        shutil.rmtree(self.path, ignore_errors=True)

    def append(self, name: str, array: NDArray[Any]) -> None:
        """Add the numbers of `array` to the end of the file `name`."""
        try:
            if name not in self._files:
                self._files[name] = (self.path / name).open("ab")
            data = np.ascontiguousarray(array).data
            self._files[name].write(data)
        except OSError as error:
            raise unwritable(self._root, error) from error
        self._hashes.setdefault(name, xxhash.xxh3_128()).update(data)

    def reserve(self, name: str, size: int) -> None:
        """Make the file `name` of `size` bytes, all 0: a hole that takes no room until it is written to."""
        try:
            with (self.path / name).open("wb") as file:
                file.truncate(size)
        except OSError as error:
            raise unwritable(self._root, error) from error

    def digests(self) -> dict[str, str]:
        """XXH3-128 of each array as it stands, in hex, by name."""
        return {name: found.hexdigest() for name, found in self._hashes.items()}

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write `content` to the file `name`; `unseal` reads it."""
        (self.path / name).write_text(seal(content), encoding="utf-8")

    def read(self, name: str, dtype: str, count: int) -> NDArray[Any]:
        """Map the `count` numbers of the file `name`."""
        self._close_files()
        array = map_array(self.path / name, dtype, count)
        if array is None:
            raise InternalError(f"{self.path / name} does not hold {count} numbers")
        return array

    def drop(self, name: str) -> None:
        """Remove the array `name`."""
        self._close_files()
        del self._hashes[name]
        (self.path / name).unlink()

    def publish(self, final: Path, is_whole: Callable[[Path], bool] | None = None) -> None:
        """Sync all files and move the directory to `final`; what already stands there stays if it is whole.

        That is where `is_whole` says so; without it, where it has the same contents.
        """
        try:
            self._close_files()
            for file in self.path.iterdir():
                flush_to_disk(file)
            flush_to_disk(self.path)
            final.parent.mkdir(parents=True, exist_ok=True)
            self._move_to(final, is_whole or (lambda path: _contents(path) == _contents(self.path)))
            flush_to_disk(final.parent)
        except OSError as error:
            raise unwritable(self._root, error) from error

    def _close_files(self) -> None:
        """Write out what is buffered; a later `append` opens a file again."""
        while self._files:
            self._files.popitem()[1].close()

    def _move_to(self, final: Path, is_whole: Callable[[Path], bool]) -> None:
        """What stands at `final` stays if it is whole, and is replaced if it is broken."""
        for _ in range(_MOVE_TRIES):
            try:
                self.path.rename(final)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if is_whole(final):
                    return
                shutil.rmtree(final, ignore_errors=True)
            else:
                return
        raise OSError(errno.EEXIST, "other processes keep writing it anew", str(final))


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that readers see the old text or the new, whenever this process ends."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush_to_disk(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise unwritable(path.parent, error) from error


def seal(content: Mapping[str, Any]) -> str:
    """`content` as JSON that tells when it was changed."""
    return json.dumps({"digest": _digest_of(content), "content": content}, indent=1)


def unseal(text: str) -> dict[str, Any]:
    """What was sealed; anything else raises `ValueError`, `KeyError` or `TypeError`."""
    sealed = json.loads(text)
    content: dict[str, Any] = sealed["content"]
    if sealed["digest"] != _digest_of(content):
        raise ValueError("its digest is another")
    return content


def map_array(path: Path, dtype: str, count: int, digest: str | None = None) -> NDArray[Any] | None:
    """The file's numbers, read-only and memory-mapped; the file does not stay open.

    None unless it holds exactly `count` of them, with the XXH3-128 `digest` if one is given.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != count * np.dtype(dtype).itemsize:
                return None
            if count == 0:
                return np.zeros(0, dtype=dtype)
            array = np.frombuffer(map_alone(file.fileno(), count * np.dtype(dtype).itemsize), dtype=dtype)
    except FileNotFoundError:
        return None
    return array if digest in (None, xxhash.xxh3_128_hexdigest(array.data)) else None


def file_digest(path: Path, read: Callable[[int], object] = lambda _: None) -> str:
    """XXH3-128 of a file, in hex. `read` is told how many bytes were read, as they are."""
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        while part := file.read(_DIGEST_BYTES):
            digest.update(part)
            read(len(part))
    return digest.hexdigest()


def unwritable(path: Path, error: OSError) -> InvalidConfigError:
    """The error for an index directory that cannot be written."""
    return InvalidConfigError(f"The index directory '{path}' cannot be written ({error}). Name another one.")


def _digest_of(content: Mapping[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())


def _contents(directory: Path) -> dict[str, str]:
    """Digests by name; empty if the directory went away under us."""
    found = {}
    try:
        for path in directory.iterdir():
            found[path.name] = file_digest(path)
    except FileNotFoundError:
        return {}
    return found


def _last_change(directory: Path) -> float:
    """When something was last written there: a pass over a large store may take days, and only its files tell."""
    return max(path.stat().st_mtime for path in (directory, *directory.iterdir()))


def _sweep(root: Path) -> None:
    for left in root.glob(f"{_BUILDING}*"):
        try:
            if time.time() - _last_change(left) > _STALE_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)
        except FileNotFoundError:
            continue
