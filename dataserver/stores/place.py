"""Where a store lies, and what the index directory has of it."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import xxhash

from dataserver.errors import InvalidConfigError, StoreNotFoundError
from dataserver.stores.discovery import Discovery, discover
from dataserver.stores.files import FileStamp
from dataserver.stores.index import write_atomically
from dataserver.stores.index_use import mark_used
from dataserver.stores.local_files import local_digest
from dataserver.stores.manifest import INDEX_VERSION, Manifest
from dataserver.stores.remote_files import discover_url
from dataserver.stores.schema import Admission, LossMask
from dataserver.stores.splits import split_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What names a store in the index directory before it is known."""

    where: Path | str
    options: Mapping[str, str]
    index: Path
    loss_mask: LossMask
    admission: Admission

    @property
    def key(self) -> str:
        """All of it, as text."""
        named = [str(self.where), sorted(self.options.items()), str(self.loss_mask), str(self.admission)]
        return json.dumps([*named, INDEX_VERSION])

    @property
    def manifest_path(self) -> Path:
        """Where its manifest is kept."""
        return self.index / "manifests" / f"{xxhash.xxh3_128_hexdigest(self.key.encode())}.json"

    def recorded(self, discovery: Discovery) -> Manifest | None:
        """What was admitted here before; None if nothing was, or it no longer agrees with the files."""
        try:
            manifest = Manifest.from_json(self.manifest_path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if tuple(shard.path for shard in manifest.shards) != discovery.paths:
            return None
        stamps = [discovery.files.stat(shard.path) for shard in manifest.shards]
        if any(stamp != shard.stamp for stamp, shard in zip(stamps, manifest.shards, strict=True)):
            return None
        mark_used(self.manifest_path)
        return self._with_times(manifest, stamps, discovery)

    def _with_times(self, manifest: Manifest, stamps: Sequence[FileStamp], discovery: Discovery) -> Manifest | None:
        """The manifest with the times of last change as they are now; None if one moved together with contents."""
        moved = [
            shard.path
            for stamp, shard in zip(stamps, manifest.shards, strict=True)
            if stamp.changed_ns != shard.stamp.changed_ns
        ]
        if not moved or manifest.admission is Admission.LAZY:
            return manifest
        digests = {shard.path: shard.digest for shard in manifest.shards}
        if any(local_digest(discovery.files, path) != digests[path] for path in moved):
            return None
        shards = (replace(shard, stamp=stamp) for stamp, shard in zip(stamps, manifest.shards, strict=True))
        manifest = replace(manifest, shards=tuple(shards))
        with suppress(InvalidConfigError):  # an index that cannot be written is compared again next time
            write_atomically(self.manifest_path, manifest.to_json())
        return manifest


def discover_at(where: Path | str, split: str | None, options: Mapping[str, str]) -> tuple[Discovery, Path | str]:
    """The files of the store, and where they lie."""
    inside = where if split is None else split_directory(where, split)
    try:
        return (discover(inside) if isinstance(inside, Path) else discover_url(inside, options)), inside
    except StoreNotFoundError:
        if split is not None:
            # Says which splits there are, if there are any.
            discover_at(where, None, options)
        raise
