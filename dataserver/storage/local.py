"""`file://`: a directory, or anything mounted as one, read by position."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dataserver.storage.objects import ObjectInfo
from dataserver.storage.retrying import Attempts, ChangedError, MissingError, ReadPolicy, TransientError

_PIECE_BYTES = 1 << 24


class LocalStorage:
    """Files below `root`; see `objects.Storage`."""

    def __init__(self, url: str, root: Path, policy: ReadPolicy) -> None:
        self.url = url
        self._root = root
        self._policy = policy

    def list(self) -> list[ObjectInfo]:
        """See `objects.Storage`. Sockets, pipes and links to nowhere are no objects."""
        return self._attempts("").run(lambda: _walk(self._root))

    def stat(self, path: str) -> ObjectInfo:
        """See `objects.Storage`."""
        return self._attempts(path).run(lambda: _stat(self._root, path))

    def read(self, info: ObjectInfo, begin: int, end: int) -> bytes:
        """See `objects.Storage`."""

        def fetch(begin: int, end: int) -> Iterator[bytes]:
            return self._fetch(info, begin, end)

        return self._attempts(info.path).read(fetch, info, begin, end)

    def _attempts(self, path: str) -> Attempts:
        return Attempts(f"'{self.url}/{path}'", self._policy)

    def _fetch(self, info: ObjectInfo, begin: int, end: int) -> Iterator[bytes]:
        try:
            with (self._root / info.path).open("rb", buffering=0) as file:
                now = _info(info.path, os.fstat(file.fileno()))
                if now != info:
                    raise ChangedError(f"its version was {info.version} and is {now.version}")
                while begin < end:
                    piece = os.pread(file.fileno(), min(end - begin, _PIECE_BYTES), begin)
                    if not piece:
                        return
                    yield piece
                    begin += len(piece)
        except FileNotFoundError as error:
            raise MissingError(error.strerror) from error
        except OSError as error:
            raise TransientError(str(error)) from error


def _walk(root: Path) -> list[ObjectInfo]:
    def fail(error: OSError) -> None:
        raise error

    try:
        found = [Path(folder, name) for folder, _, names in os.walk(root, onerror=fail) for name in names]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise TransientError(str(error)) from error
    infos = [_stat(root, path.relative_to(root).as_posix()) for path in found if path.is_file()]
    return sorted(infos, key=lambda info: info.path)


def _stat(root: Path, path: str) -> ObjectInfo:
    try:
        status = (root / path).stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingError(error.strerror) from error
    except OSError as error:
        raise TransientError(str(error)) from error
    if not stat.S_ISREG(status.st_mode):
        raise MissingError("not a file")
    return _info(path, status)


def _info(path: str, status: os.stat_result) -> ObjectInfo:
    version = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
    return ObjectInfo(path=path, size=status.st_size, version=version)
