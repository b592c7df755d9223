"""From a URL to the storage that it names."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

from dataserver.errors import InvalidConfigError, StoreNotFoundError
from dataserver.storage.objects import ObjectInfo, Storage, WritableStorage
from dataserver.storage.options import refuse_options
from dataserver.storage.retrying import ReadPolicy

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(text: str) -> bool:
    """Whether `text` names a storage rather than a path."""
    return _URL.match(text) is not None


def open_storage(url: str, options: Mapping[str, str] | None = None, *, policy: ReadPolicy | None = None) -> Storage:
    """The storage at `url`. Nothing is read yet.

    Raises `InvalidConfigError` for a URL or an option that is not understood, or a library that is missing.
    """
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    opener = _OPENERS.get(scheme)
    if not is_url(url) or opener is None:
        known = ", ".join(f"{scheme}://" for scheme in _OPENERS)
        raise InvalidConfigError(f"'{url}' is no URL of a storage. Known are {known}.")
    if "@" in urlsplit(url).netloc:
        raise InvalidConfigError(
            f"a {scheme}:// URL has something before an @, as credentials do. Leave them out: they come from the "
            "environment, the way the storage's own tools take them."
        )
    try:
        return opener(f"{scheme}://{rest.rstrip('/')}", options or {}, policy or ReadPolicy())
    except ImportError as error:
        extra = _EXTRAS.get(scheme, scheme)
        raise InvalidConfigError(f"'{url}' needs {error.name}: pip install 'dataserver[{extra}]'.") from error


def find_objects(
    url: str, options: Mapping[str, str] | None = None, *, policy: ReadPolicy | None = None
) -> tuple[Storage, list[ObjectInfo]]:
    """The objects below `url`, or the one that `url` names, and the storage to read them from.

    Raises `StoreNotFoundError` if there is nothing.
    """
    storage = open_storage(url, options, policy=policy)
    infos = storage.list()
    if infos:
        return storage, infos
    parent, _, name = storage.url.rpartition("/")
    if is_url(parent) and not parent.endswith("/"):
        above = open_storage(parent, options, policy=policy)
        try:
            return above, [above.stat(name)]
        except StoreNotFoundError:
            pass
    raise StoreNotFoundError(f"There is nothing at '{storage.url}'.")


def open_writable(url: str, *, policy: ReadPolicy | None = None) -> WritableStorage:
    """The object storage at `url`, to write to as well: where it is and by which account, the environment says.

    Raises `InvalidConfigError` as `open_storage` does, and for a storage that cannot be written to.
    """
    storage = open_storage(url, policy=policy)
    if not is_writable(url):
        raise InvalidConfigError(f"'{url}' cannot be written to; what can: {', '.join(f'{s}://' for s in _WRITABLE)}.")
    return cast("WritableStorage", storage)


def is_writable(url: str) -> bool:
    """Whether `url` names a kind of storage that takes objects."""
    return url.partition("://")[0].lower() in _WRITABLE


def _open_file(url: str, options: Mapping[str, str], policy: ReadPolicy) -> Storage:
    from dataserver.storage.local import LocalStorage  # noqa: PLC0415

    refuse_options(url, options, ())
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise InvalidConfigError(f"'{url}' names no file or directory: a file URL has three slashes, file:///PATH.")
    return LocalStorage(url, Path(unquote(parts.path)), policy)


def _open_memory(url: str, options: Mapping[str, str], policy: ReadPolicy) -> Storage:
    from dataserver.storage.memory import MemoryStorage  # noqa: PLC0415

    refuse_options(url, options, ())
    return MemoryStorage(url, policy)


def _open_bucket(url: str, options: Mapping[str, str], policy: ReadPolicy) -> Storage:
    from dataserver.storage.buckets import open_bucket  # noqa: PLC0415

    return open_bucket(url, options, policy)


def _open_hub(url: str, options: Mapping[str, str], policy: ReadPolicy) -> Storage:
    from dataserver.storage.hub import OPTIONS, HubStorage  # noqa: PLC0415

    refuse_options(url, options, OPTIONS)
    return HubStorage(url, options.get("endpoint"), policy)


# Which extra of this package brings the library, where it has another name than the scheme.
_EXTRAS = {"memory": "hf"}

_WRITABLE = ("s3", "gs", "az")

_OPENERS: dict[str, Callable[[str, Mapping[str, str], ReadPolicy], Storage]] = {
    "s3": _open_bucket,
    "gs": _open_bucket,
    "az": _open_bucket,
    "hf": _open_hub,
    "file": _open_file,
    "memory": _open_memory,
}
