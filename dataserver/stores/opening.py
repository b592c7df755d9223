"""Opening a store: by its manifest if nothing changed since, by the eager pass if not.

discover ──> manifest of this path? ── sizes, times, inodes agree ──> map the index   (warm)
                                   └── no ──> scan ──> write index, then manifest ──> map it
"""

import json
from pathlib import Path

import xxhash

from dataserver.errors import StoreDamagedError, StoreRefusedError
from dataserver.stores.discovery import Discovery, discover
from dataserver.stores.index import Building, default_index_dir, write_atomically
from dataserver.stores.manifest import INDEX_VERSION, Manifest, Shard
from dataserver.stores.progress import Progress, no_progress
from dataserver.stores.schema import LossMask
from dataserver.stores.store import Store
from dataserver.stores.tables import Tables


def open_store(
    path: str | Path,
    *,
    loss_mask: LossMask = LossMask.COLUMN,
    index_dir: Path | None = None,
    progress: Progress | None = None,
) -> Store:
    """Open the store at `path`, a file or a directory; the first time every row is checked.

    `index_dir`: where derived data goes, by default `~/.cache/dataserver/index`. `progress` is
    called with bytes done and bytes in all while rows are checked.

    Raises `StoreNotFoundError`, `StoreRefusedError` for the first rule that the store breaks, and
    `InvalidConfigError` if the index cannot be written.
    """
    if "://" in str(path):
        raise StoreRefusedError(f"'{path}' is a URL. Only stores on local disks are read yet: give a path.")
    root = Path(path).absolute()
    loss_mask = LossMask(loss_mask)
    index = default_index_dir() if index_dir is None else index_dir.absolute()
    try:
        discovery = discover(root)
        warm = _open_warm(root, index, discovery, loss_mask)
        if warm is not None:
            return warm
        return _open_cold(root, index, discovery, loss_mask, progress or no_progress)
    except OSError as error:
        raise StoreRefusedError(f"Pretokenized dataset at '{root}' cannot be read ({error}).") from error


def reopen_store(path: Path, loss_mask: LossMask, index_dir: Path, fingerprint: str) -> Store:
    """What a pickled store becomes; raises `StoreDamagedError` if it is no longer the same."""
    store = open_store(path, loss_mask=loss_mask, index_dir=index_dir)
    if store.fingerprint != fingerprint:
        raise StoreDamagedError(
            f"The store at '{path}' changed: its fingerprint was {fingerprint} and is {store.fingerprint}."
        )
    return store


def _open_warm(root: Path, index: Path, discovery: Discovery, loss_mask: LossMask) -> Store | None:
    """The store by its manifest; None if there is none, or it no longer agrees with the files or the index."""
    try:
        text = _manifest_path(root, index, loss_mask).read_text(encoding="utf-8")
        manifest = Manifest.from_json(text)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if tuple(shard.path for shard in manifest.shards) != discovery.paths:
        return None
    if not all(_agrees(discovery.root / shard.path, shard) for shard in manifest.shards):
        return None
    return _open_admitted(root, index, discovery, manifest)


def _open_cold(root: Path, index: Path, discovery: Discovery, loss_mask: LossMask, progress: Progress) -> Store:
    # Imported here: a warm open needs no pyarrow.
    from dataserver.stores.scan import scan_store  # noqa: PLC0415

    store = None
    while store is None:
        # Again if someone deleted the index in between: it may be deleted at any time.
        with Building(index) as building:
            manifest = scan_store(discovery, store_path=root, loss_mask=loss_mask, building=building, progress=progress)
            building.publish(_tables_path(index, manifest))
        write_atomically(_manifest_path(root, index, loss_mask), manifest.to_json())
        store = _open_admitted(root, index, discovery, manifest)
    return store


def _open_admitted(root: Path, index: Path, discovery: Discovery, manifest: Manifest) -> Store | None:
    tables = Tables.open(_tables_path(index, manifest), rows=manifest.rows, shards=len(manifest.shards))
    if tables is None:
        return None
    return Store(path=root, index_dir=index, discovery=discovery, manifest=manifest, tables=tables)


def _agrees(path: Path, shard: Shard) -> bool:
    stat = path.stat()
    return (stat.st_size, stat.st_mtime_ns, stat.st_ino) == (shard.size, shard.mtime_ns, shard.inode)


def _tables_path(index: Path, manifest: Manifest) -> Path:
    return index / "stores" / f"{manifest.fingerprint}-{INDEX_VERSION}"


def _manifest_path(root: Path, index: Path, loss_mask: LossMask) -> Path:
    key = json.dumps([str(root), str(loss_mask), INDEX_VERSION])
    return index / "manifests" / f"{xxhash.xxh3_128_hexdigest(key.encode())}.json"
