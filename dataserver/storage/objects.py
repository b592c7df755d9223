"""What a storage holds, and what every kind of storage can do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object as it was when it was looked at.

    `path` is relative to the storage's URL, with `/`. `size` in bytes. `version` names the content: two
    objects of one path and one version hold the same bytes (an etag, or size, time and inode of a file).
    """

    path: str
    size: int
    version: str


class Storage(Protocol):
    """Objects below one URL. Safe to use from many threads at once; nothing is read when it is made.

    Every method raises `UnavailableError` once the storage was out of reach, or refused the credentials,
    for longer than it is worth trying.
    """

    @property
    def url(self) -> str:
        """Where the objects lie, without anything secret."""
        ...

    def list(self) -> list[ObjectInfo]:
        """Every object below the URL, however deep, sorted by path; none if nothing is there.

        Raises `StoreNotFoundError` if there is no such bucket.
        """
        ...

    def stat(self, path: str) -> ObjectInfo:
        """The object at `path`; raises `StoreNotFoundError` if there is none."""
        ...

    def read(self, info: ObjectInfo, begin: int, end: int) -> bytes:
        """Bytes `begin` up to `end`, `end` excluded: all of them, in one request unless it breaks off.

        Raises `StoreDamagedError` if the object is gone or no longer the one that `info` tells of.
        """
        ...


class WritableStorage(Storage, Protocol):
    """A storage that takes objects, too; stores are never written this way."""

    def put(self, path: str, data: bytes) -> None:
        """Write an object, in place of one that may be there. It is seen whole or not at all."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Remove objects; one that is not there is none to remove. One deadline holds for all."""
        ...
