"""Arrow copies of JSON Lines files, in the index directory.

    <index>/copies/<digest of the file>-<where the mask comes from>-<version>/rows.arrow
                                                                              copy.json   its rows, size and digest

A copy is derived data: it may be deleted at any time, is checked against its digest before it is used, and is made
anew where it is missing or damaged. The index of a store says at which byte of a copy a row begins, so the manifest
names the copy's digest, and no other copy is read by it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import xxhash

from dataserver.errors import StoreDamagedError
from dataserver.stores.files import ByteSource, FileStamp, StoreFiles
from dataserver.stores.index import Building, unseal, unwritable
from dataserver.stores.index_use import mark_used
from dataserver.stores.local_files import LocalSource
from dataserver.stores.manifest import Manifest, Shard
from dataserver.stores.read_through import ReadThrough
from dataserver.stores.schema import LossMask

# Part of the name of every copy: tick it when other rows or other bytes come of the same file.
COPY_VERSION: Final = 2

_ROWS: Final = "rows.arrow"
_FACTS: Final = "copy.json"
_CHUNK: Final = 1 << 20


def _report_nothing(_: int) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class CopySource(LocalSource):
    """An open copy. `digest`: XXH3-128 of its bytes, in hex."""

    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What `copy.json` says of `rows.arrow`."""

    rows: int
    size: int
    digest: str


class JsonCopies:
    """The copies of a store's files; see `ShardFiles`. Safe to use from several threads.

    `stat` tells of the files themselves: whoever changes one changes the store.
    """

    def __init__(self, *, files: StoreFiles, paths: tuple[str, ...], index: Path, loss_mask: LossMask) -> None:
        self._files = files
        self._paths = paths
        self._index = index
        self._loss_mask = loss_mask
        self._admitted: dict[str, Shard] = {}
        self._digests: dict[str, tuple[FileStamp, str]] = {}
        self._checked: set[tuple[Path, FileStamp]] = set()

    @property
    def name(self) -> str:
        """See `ShardFiles`."""
        return self._files.name

    @property
    def watched(self) -> bool:
        """See `ShardFiles`."""
        return self._files.watched

    def stat(self, path: str) -> FileStamp:
        """See `ShardFiles`."""
        return self._files.stat(path)

    def pin(self, manifest: Manifest) -> bool:
        """Read only the copies that `manifest` names from now on; False, and nothing else, where one is not there."""
        found = ((shard, self._facts(shard.digest)) for shard in manifest.shards)
        if not all(facts is not None and facts.digest == shard.copy_digest for shard, facts in found):
            return False
        self._admitted = {shard.path: shard for shard in manifest.shards}
        return True

    def digest_of(self, path: str) -> str:
        """XXH3-128 of the file at `path`, in hex, for which it is read once as long as it stays the same."""
        stamp = self._files.stat(path)
        known = self._digests.get(path)
        if known is None or known[0] != stamp:
            known = self._digests[path] = (stamp, _digest_of(self._files.open(path)))
        return known[1]

    def open(self, path: str, done: Callable[[int], None] = _report_nothing) -> CopySource:
        """The copy of the file at `path`, made if need be; `done` is called with bytes of the file gone through.

        Raises `OSError`, `StoreRefusedError` for a file that breaks a rule, and `StoreDamagedError` where the copy that
        the manifest names cannot be had any more.
        """
        admitted = self._admitted.get(path)
        source = self._files.open(path)
        if admitted is None and source.local_path is None and path not in self._digests:
            # Fetched once, which costs more than making a copy that there may be already.
            self._make(path, source, done)
            done = _report_nothing
        digest = admitted.digest if admitted else self.digest_of(path)
        rows_path = self._directory(digest) / _ROWS
        facts = self._facts(digest)
        if facts is not None and self._is_whole(rows_path, facts):
            done(source.size)
        else:
            facts = self._make(path, source, done)
        if admitted and facts.digest != admitted.copy_digest:
            raise StoreDamagedError(
                f"The Arrow copy of shard '{path}' in '{self.name}' was deleted, and comes out otherwise now than when "
                "the store was opened. Open the store again.",
                shard=path,
            )
        return CopySource(name=path, size=facts.size, local_path=rows_path, digest=facts.digest)

    def _make(self, path: str, source: ByteSource, done: Callable[[int], None]) -> _Facts:
        # Imported here: a warm open needs neither pyarrow nor a parser.
        from dataserver.stores.json_copy import write_copy  # noqa: PLC0415

        stamp = self._files.stat(path)
        with Building(self._index) as building:
            rows_path = building.path / _ROWS
            try:
                with _read_ahead(source) as lines:
                    rows = write_copy(lines, rows_path, self._loss_mask, lambda: self._rows_before(path), done)
                    if isinstance(lines, ReadThrough):
                        self._digests[path] = (stamp, lines.hexdigest())
            except OSError as error:
                raise unwritable(self._index, error) from error
            digest = self.digest_of(path)
            copied = LocalSource(name=path, size=rows_path.stat().st_size, local_path=rows_path)
            facts = _Facts(rows=rows, size=copied.size, digest=_digest_of(copied))
            building.write_json(_FACTS, asdict(facts))
            building.publish(self._directory(digest))
        self._checked.add(_stamp_of(self._directory(digest) / _ROWS))
        return facts

    def _rows_before(self, path: str) -> int:
        """Rows of the store before those of `path`, whose files have all been copied before."""
        earlier = self._paths[: self._paths.index(path)]
        found = (self._facts(self.digest_of(name)) for name in earlier)
        return sum(facts.rows for facts in found if facts is not None)

    def _directory(self, digest: str) -> Path:
        return self._index / "copies" / f"{digest}-{self._loss_mask}-{COPY_VERSION}"

    def _facts(self, digest: str) -> _Facts | None:
        try:
            return _Facts(**unseal((self._directory(digest) / _FACTS).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _is_whole(self, path: Path, facts: _Facts) -> bool:
        """Whether the copy has the bytes that were written; they are gone through once."""
        try:
            stat = path.stat()
        except FileNotFoundError:
            return False
        if stat.st_size != facts.size:
            return False
        stamp = _stamp_of(path)
        if stamp not in self._checked:
            if _digest_of(LocalSource(name=path.name, size=stat.st_size, local_path=path)) != facts.digest:
                return False
            self._checked.add(stamp)
        mark_used(path.parent)
        return True


def _read_ahead(source: ByteSource) -> AbstractContextManager[ByteSource]:
    """A file that is far away is read ahead in large pieces, and hashed as it passes."""
    return nullcontext(source) if source.local_path is not None else ReadThrough(source, _report_nothing)


def _stamp_of(path: Path) -> tuple[Path, FileStamp]:
    stat = path.stat()
    return path, FileStamp(size=stat.st_size, version=f"{stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}")


def _digest_of(source: ByteSource) -> str:
    found = xxhash.xxh3_128()
    for begin in range(0, source.size, _CHUNK):
        found.update(source.read(begin, min(begin + _CHUNK, source.size)))
    return found.hexdigest()
