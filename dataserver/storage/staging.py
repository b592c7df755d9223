"""Where a store grows while it is pulled, so that nobody takes a part of it for the whole.

    <parent>/.<name>.pulling/lock         held by the one who pulls
    <parent>/.<name>.pulling/files/       files that are whole
    <parent>/.<name>.pulling/part         the one that is being written …
    <parent>/.<name>.pulling/part.json    … which it is, and how much of it the disk has
    <parent>/.<name>.pulling/done.jsonl   what lies in files/, a line each
                        └── all of it there: files/ gets its name, `<parent>/<name>`, in one rename

What was synced is told with its digest, so what a crash of the machine made of the rest is cut off.
"""

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Self

import xxhash

from dataserver.durable import flush_to_disk, write_durably
from dataserver.errors import InvalidConfigError, StoreDamagedError, StoreRefusedError
from dataserver.storage.file_locks import lock_now
from dataserver.storage.objects import ObjectInfo

# Beside the files of a pulled store: what they are. Hidden, so no reader of stores takes it for data.
RECORD = ".pulled.json"

# Between two syncs a killed pull loses what it fetched; each costs a wait for the disk.
_SYNC_BYTES = 1 << 26
_COPY_BYTES = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledFile:
    """A file that was pulled: which object, and the XXH3-128 of its bytes."""

    path: str
    size: int
    version: str
    digest: str


class Staging:
    """The staging directory of `directory`. One process at a time; `close` leaves it for the next."""

    def __init__(self, directory: Path) -> None:
        self._target = directory
        self.root = directory.with_name(f".{directory.name}.pulling")
        self._files = self.root / "files"
        self._lock: BinaryIO | None = None

    def open(self, infos: list[ObjectInfo]) -> dict[str, PulledFile]:
        """Take the staging directory; returns what of `infos` is there already, and removes what is not of them."""
        self._files.mkdir(parents=True, exist_ok=True)
        self._lock = (self.root / "lock").open("ab")
        if not lock_now(self._lock):
            raise InvalidConfigError(f"Another process is pulling into '{self._target}': wait for it, or end it.")
        wanted = {info.path: info for info in infos}
        done = {file.path: file for file in self._read_done() if self._is_whole(file, wanted.get(file.path))}
        for found in [path for path in self._files.rglob("*") if not path.is_dir()]:
            if found.relative_to(self._files).as_posix() not in done:
                found.unlink()
        return done

    def part(self, info: ObjectInfo) -> "Part":
        """The file to write next, with what an earlier pull left of it."""
        return Part.open(self.root, info)

    def begun(self, info: ObjectInfo) -> int:
        """Bytes of `info` that an earlier pull left."""
        with self.part(info) as part:
            return part.position

    def finish(self, part: "Part", digest: str | None) -> PulledFile:
        """Put a written file among the whole ones. `digest`: what it must have, if that is known."""
        file = part.finish(digest)
        target = self._files / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        with (self.root / "done.jsonl").open("a", encoding="utf-8") as done:
            done.write(json.dumps(asdict(file)) + "\n")
            done.flush()
            os.fsync(done.fileno())
        # After the note: a file without one would be fetched again, a note without its file is seen through.
        (self.root / "part").rename(target)
        return file

    def publish(self, url: str, files: list[PulledFile]) -> None:
        """Give the whole store its name."""
        record = {"url": url, "files": [asdict(file) for file in files]}
        write_durably(self._files / RECORD, json.dumps(record, indent=1).encode())
        for folder, _, _ in os.walk(self._files):
            flush_to_disk(Path(folder))
        self._files.rename(self._target)
        flush_to_disk(self._target.parent)
        shutil.rmtree(self.root, ignore_errors=True)

    def close(self) -> None:
        """Let the next one pull. Idempotent."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _read_done(self) -> list[PulledFile]:
        lines: list[str] = []
        with suppress(FileNotFoundError):
            lines = (self.root / "done.jsonl").read_text(encoding="utf-8").splitlines()
        found = []
        for line in lines:
            with suppress(ValueError, TypeError):  # a line that was being written
                found.append(PulledFile(**json.loads(line)))
        return found

    def _is_whole(self, file: PulledFile, info: ObjectInfo | None) -> bool:
        if info is None or (info.size, info.version) != (file.size, file.version):
            return False
        path = self._files / file.path
        return path.is_file() and path.stat().st_size == file.size


class Part:
    """A file that is being written from its beginning to its end."""

    def __init__(self, info: ObjectInfo, file: BinaryIO, state: Path) -> None:
        self.info = info
        self.position = 0
        self._file = file
        self._state = state
        self._hasher = xxhash.xxh3_128()
        self._synced = 0

    @classmethod
    def open(cls, root: Path, info: ObjectInfo) -> Self:
        """The part in `root`: what an earlier pull left if it was of the same version, and an empty one if not."""
        path = root / "part"
        part = cls(info, path.open("r+b" if path.exists() else "w+b"), root / "part.json")
        part._resume()
        return part

    def write(self, data: bytes) -> None:
        """Add `data` at the end of what is there."""
        self._file.write(data)
        self._hasher.update(data)
        self.position += len(data)
        if self.position - self._synced >= _SYNC_BYTES:
            self._sync()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the file, and keep what it has for the next pull."""
        if not self._file.closed:
            with self._file:
                self._sync()

    def finish(self, digest: str | None) -> PulledFile:
        """End the file; raise `StoreDamagedError` if it is not what it should be."""
        self._sync()
        self._file.close()
        found = self._hasher.hexdigest()
        if self.position != self.info.size or (digest is not None and found != digest):
            self._state.unlink()
            raise StoreDamagedError(
                f"'{self.info.path}' was pulled as {self.position:,} bytes with the digest {found}; it should be "
                f"{self.info.size:,} with {digest or 'any'}."
            )
        return PulledFile(path=self.info.path, size=self.info.size, version=self.info.version, digest=found)

    def _sync(self) -> None:
        """Wait until the disk has it, and note how much that is."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._synced = self.position
        state = asdict(self.info) | {"position": self.position, "digest": self._hasher.hexdigest()}
        write_durably(self._state, json.dumps(state).encode())

    def _resume(self) -> None:
        """Go on where the disk was when that was noted, if it is the same version and still holds it."""
        position, digest = self._noted()
        while self.position < position and (data := self._file.read(min(_COPY_BYTES, position - self.position))):
            self._hasher.update(data)
            self.position += len(data)
        if self.position and self._hasher.hexdigest() != digest:
            self._hasher.reset()
            self.position = 0
        self._synced = self.position
        self._file.seek(self.position)
        self._file.truncate()

    def _noted(self) -> tuple[int, str]:
        """How much of this version was synced, and the digest of that; nothing if it was another version."""
        try:
            state = json.loads(self._state.read_text(encoding="utf-8"))
            position, digest = int(state.pop("position")), str(state.pop("digest"))
            return (position, digest) if ObjectInfo(**state) == self.info else (0, "")
        except (OSError, ValueError, TypeError, KeyError):
            return 0, ""


def target_of(path: str) -> str:
    """`path`, if it stays below the directory that it is pulled into; raises `StoreRefusedError` if not."""
    parts = path.split("/")
    if any(part in {"", ".", ".."} or "\0" in part for part in parts) or path == RECORD:
        raise StoreRefusedError(f"The storage holds an object named {path!r}, which is no path below a directory.")
    return path
