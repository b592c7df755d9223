"""`memory://`, by fsspec: one space for the whole process, and whatever a program puts there is served."""

from collections.abc import Iterator

import fsspec

from dataserver.storage.objects import ObjectInfo
from dataserver.storage.retrying import Attempts, ChangedError, MissingError, ReadPolicy


class MemoryStorage:
    """Files of this process's memory; see `objects.Storage`."""

    def __init__(self, url: str, policy: ReadPolicy) -> None:
        self.url = url
        self._root = ("/" + url.partition("://")[2].strip("/")).rstrip("/")
        self._files = fsspec.filesystem("memory")
        self._policy = policy

    def list(self) -> list[ObjectInfo]:
        """See `objects.Storage`."""
        within = len(self._root) + 1
        infos = [self._stat(name[within:]) for name in self._files.find(self._root) if len(name) > within]
        return sorted(infos, key=lambda info: info.path)

    def stat(self, path: str) -> ObjectInfo:
        """See `objects.Storage`."""
        return self._attempts(path).run(lambda: self._stat(path))

    def read(self, info: ObjectInfo, begin: int, end: int) -> bytes:
        """See `objects.Storage`."""

        def fetch(begin: int, end: int) -> Iterator[bytes]:
            now = self._stat(info.path)
            if now != info:
                raise ChangedError(f"its version was {info.version} and is {now.version}")
            yield self._files.cat_file(f"{self._root}/{info.path}", begin, end)

        return self._attempts(info.path).read(fetch, info, begin, end)

    def _attempts(self, path: str) -> Attempts:
        return Attempts(f"'{self.url}/{path}'", self._policy)

    def _stat(self, path: str) -> ObjectInfo:
        name = f"{self._root}/{path}"
        if not self._files.isfile(name):
            raise MissingError("no such object")
        size = self._files.size(name)
        return ObjectInfo(path=path, size=size, version=f"{size}-{self._files.modified(name).isoformat()}")
