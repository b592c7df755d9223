"""A store in object storage: what one listing found, each object read by position at the version that it had then."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dataserver.errors import StoreNotFoundError, StoreRefusedError
from dataserver.storage import ObjectInfo, Storage, find_objects
from dataserver.storage.cache_entry import CacheKey
from dataserver.stores.discovery import Discovery, discover_directory, discover_file
from dataserver.stores.files import FileStamp, is_hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSource:
    """One object; see `files.ByteSource`. A read of an object that changed raises `StoreDamagedError`."""

    storage: Storage
    info: ObjectInfo

    local_path = None

    @property
    def name(self) -> str:
        """See `files.ByteSource`."""
        return self.info.path

    @property
    def size(self) -> int:
        """See `files.ByteSource`."""
        return self.info.size

    def key(self, begin: int, end: int) -> CacheKey:
        """What names these bytes in the disk cache."""
        return CacheKey(self.storage.url, self.info.path, self.info.version, begin, end)

    def read(self, begin: int, end: int) -> bytes:
        """See `files.ByteSource`. One request."""
        return self.storage.read(self.info, begin, end) if end > begin else b""


class RemoteFiles:
    """The objects of one storage, as they were listed; see `files.StoreFiles`. Reads notice every later change."""

    watched = False

    def __init__(self, storage: Storage, infos: Sequence[ObjectInfo]) -> None:
        self.storage = storage
        self.name = storage.url
        self._infos = {info.path: info for info in infos}

    def walk(self) -> Iterator[str]:
        """See `files.StoreFiles`. Objects whose names end with `/` mark directories, and are no files."""
        hidden: set[str] = set()
        for path in self._infos:
            if path.endswith("/"):
                continue
            above = _hidden_directory(path)
            if above is None:
                yield path
            elif above not in hidden:
                hidden.add(above)
                yield above

    def top(self) -> list[str]:
        """See `files.StoreFiles`."""
        return sorted({path.partition("/")[0] for path in self._infos})

    def is_file(self, path: str) -> bool:
        """See `files.StoreFiles`."""
        return path in self._infos

    def stat(self, path: str) -> FileStamp:
        """See `files.StoreFiles`. As it was listed."""
        info = self._info(path)
        return FileStamp(size=info.size, version=info.version)

    def open(self, path: str) -> RemoteSource:
        """See `files.StoreFiles`."""
        return RemoteSource(storage=self.storage, info=self._info(path))

    def links_out(self, paths: Sequence[str]) -> tuple[tuple[str, str], ...]:  # noqa: ARG002 - there are no links
        """See `files.StoreFiles`."""
        return ()

    def _info(self, path: str) -> ObjectInfo:
        info = self._infos.get(path)
        if info is None:
            raise StoreNotFoundError(f"There is no object '{path}' in '{self.name}'.")
        return info


def discover_url(url: str, options: Mapping[str, str]) -> Discovery:
    """Find the objects of the store at `url` with one listing.

    Raises `StoreNotFoundError`, `UnavailableError`, and as `discovery.discover` does.
    """
    storage, infos = find_objects(url, options)
    for info in infos:
        if "//" in f"/{info.path}":
            raise StoreRefusedError(f"'{info.path}' in '{storage.url}' has an empty name among its directories.")
    files = RemoteFiles(storage, infos)
    if len(infos) == 1 and f"{storage.url}/{infos[0].path}".lower() == url.rstrip("/").lower():
        return discover_file(files, infos[0].path)
    return discover_directory(files)


def _hidden_directory(path: str) -> str | None:
    """The uppermost hidden directory above `path`, with a `/` at its end."""
    names = path.split("/")[:-1]
    for at, name in enumerate(names):
        if is_hidden(name):
            return "/".join(names[: at + 1]) + "/"
    return None
