"""Opening a store: by its manifest if nothing changed since, by the eager pass if not.

discover ──> manifest of this path? ── sizes, versions agree ──> map the index   (warm)
                                   └── no ──> scan ──> write index, then manifest ──> map it
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import xxhash

from dataserver.errors import StoreDamagedError, StoreNotFoundError, StoreRefusedError
from dataserver.storage import is_url
from dataserver.storage.disk_cache import DiskCache
from dataserver.stores.block_cache import BlockCache, shared_cache
from dataserver.stores.copies import JsonCopies
from dataserver.stores.discovery import Discovery, discover
from dataserver.stores.index import Building, default_index_dir, write_atomically
from dataserver.stores.manifest import INDEX_VERSION, Manifest
from dataserver.stores.progress import ReportBytes, report_nothing
from dataserver.stores.remote_files import discover_url
from dataserver.stores.schema import LossMask
from dataserver.stores.shard_rows import ShardRows
from dataserver.stores.spans import FetchTables
from dataserver.stores.splits import split_directory
from dataserver.stores.store import Store
from dataserver.stores.tables import Tables


def open_store(
    path: str | Path,
    *,
    loss_mask: LossMask = LossMask.COLUMN,
    split: str | None = None,
    index_dir: Path | None = None,
    progress: ReportBytes | None = None,
    cache: BlockCache | None = None,
    storage_options: Mapping[str, str] | None = None,
    disk_cache: DiskCache | None = None,
) -> Store:
    """Open the store at `path`, a file, a directory or a URL of either; the first time every row is checked.

    `split`: the one to open of a saved `DatasetDict`. `index_dir`: where derived data goes, by default
    `~/.cache/dataserver/index`. `progress` is called with bytes done and bytes in all while rows are
    checked. `cache` holds decoded blocks, by default one of 1 GiB that all stores of the process share.
    For URLs, `storage_options` go to the storage, and `disk_cache` keeps what was fetched; without one
    every block is fetched when it is read.

    Raises `StoreNotFoundError`, `StoreRefusedError` for the first rule that the store breaks,
    `UnavailableError` while the storage is out of reach, and `InvalidConfigError` if the index cannot be written.
    """
    loss_mask = LossMask(loss_mask)
    where = str(path).rstrip("/") if is_url(str(path)) else Path(path).absolute()
    index = default_index_dir() if index_dir is None else index_dir.absolute()
    options = dict(storage_options or {})
    try:
        discovery, where = _discover(where, split, options)
        discovery = _with_copies(discovery, index, loss_mask)
        place = _Place(where=where, options=options, index=index, loss_mask=loss_mask)
        manifest, tables = _find(place, discovery) or _admit(place, discovery, progress or report_nothing)
        if discovery.copies is not None:
            # Gone through once, here: the thread that serves rows must not wait for it.
            for shard in manifest.shards:
                discovery.copies.open(shard.path)
    except OSError as error:
        raise StoreRefusedError(f"Pretokenized dataset at '{where}' cannot be read ({error}).") from error
    cache = cache or shared_cache()
    _check_block_sizes(manifest, tables, cache.limit_bytes)
    kept = None if disk_cache is None else (disk_cache.directory, disk_cache.limit_bytes)
    return Store(
        path=where,
        index_dir=index,
        discovery=discovery,
        manifest=manifest,
        tables=tables,
        shard_rows=ShardRows(
            files=discovery.copies or discovery.files,
            manifest=manifest,
            tables=tables,
            cache=cache,
            disk_cache=disk_cache,
        ),
        reopen=partial(reopen_store, storage_options=options, disk_cache=kept),
    )


def reopen_store(
    path: str | Path,
    loss_mask: LossMask,
    index_dir: Path,
    fingerprint: str,
    *,
    storage_options: Mapping[str, str],
    disk_cache: tuple[Path, int] | None,
) -> Store:
    """What a pickled store becomes; raises `StoreDamagedError` if it is no longer the same."""
    store = open_store(
        path,
        loss_mask=loss_mask,
        index_dir=index_dir,
        storage_options=storage_options,
        disk_cache=None if disk_cache is None else DiskCache(*disk_cache),
    )
    if store.fingerprint != fingerprint:
        raise StoreDamagedError(
            f"The store at '{path}' changed: its fingerprint was {fingerprint} and is {store.fingerprint}."
        )
    return store


def default_disk_cache_dir() -> Path:
    """Where what was fetched is kept unless a directory is given."""
    return Path.home() / ".cache" / "dataserver" / "blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What names a store in the index directory before it is known."""

    where: Path | str
    options: Mapping[str, str]
    index: Path
    loss_mask: LossMask

    @property
    def key(self) -> str:
        return json.dumps([str(self.where), sorted(self.options.items()), str(self.loss_mask), INDEX_VERSION])

    @property
    def manifest_path(self) -> Path:
        return self.index / "manifests" / f"{xxhash.xxh3_128_hexdigest(self.key.encode())}.json"


def _discover(where: Path | str, split: str | None, options: Mapping[str, str]) -> tuple[Discovery, Path | str]:
    """The files of the store, and where they lie."""
    inside = where if split is None else split_directory(where, split)
    try:
        return (discover(inside) if isinstance(inside, Path) else discover_url(inside, options)), inside
    except StoreNotFoundError:
        if split is not None:
            # Says which splits there are, if there are any.
            _discover(where, None, options)
        raise


def _with_copies(discovery: Discovery, index: Path, loss_mask: LossMask) -> Discovery:
    if discovery.format != "json":
        return discovery
    copies = JsonCopies(files=discovery.files, paths=discovery.paths, index=index, loss_mask=loss_mask)
    return replace(discovery, copies=copies)


def _find(place: _Place, discovery: Discovery) -> tuple[Manifest, Tables] | None:
    """What was admitted before; None if nothing was, or it no longer agrees with the files or the index."""
    try:
        manifest = Manifest.from_json(place.manifest_path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if tuple(shard.path for shard in manifest.shards) != discovery.paths:
        return None
    if any(discovery.files.stat(shard.path) != shard.stamp for shard in manifest.shards):
        return None
    tables = _open_tables(place.index, discovery, manifest)
    return None if tables is None else (manifest, tables)


def _admit(place: _Place, discovery: Discovery, progress: ReportBytes) -> tuple[Manifest, Tables]:
    # Imported here: a warm open needs no pyarrow.
    from dataserver.stores.scan import scan_store  # noqa: PLC0415
    from dataserver.stores.shard_results import ShardResults  # noqa: PLC0415

    results = ShardResults(place.index, place.key)
    tables = None
    while tables is None:
        # Again if someone deleted the index in between: it may be deleted at any time.
        with Building(place.index) as building:
            manifest = scan_store(
                discovery,
                store_path=str(place.where),
                loss_mask=place.loss_mask,
                building=building,
                results=results,
                progress=progress,
            )
            building.publish(_tables_path(place.index, manifest))
        write_atomically(place.manifest_path, manifest.to_json())
        tables = _open_tables(place.index, discovery, manifest)
    results.clear()
    return manifest, tables


def _open_tables(index: Path, discovery: Discovery, manifest: Manifest) -> Tables | None:
    if discovery.copies is not None and not discovery.copies.pin(manifest):
        return None
    directory = _tables_path(index, manifest)
    tables = Tables.open(directory, rows=manifest.rows, shards=len(manifest.shards), digests=manifest.array_digests)
    if tables is None or not manifest.is_far:
        return tables
    fetch = FetchTables.open(directory, manifest)
    return None if fetch is None else replace(tables, fetch=fetch)


def _check_block_sizes(manifest: Manifest, tables: Tables, cache_bytes: int) -> None:
    """Refuse a block that could not be decoded within the cache: a read of one of its rows would wait for ever."""
    for shard, blocks in zip(manifest.shards, tables.blocks, strict=True):
        needed_bytes = blocks.needed_bytes
        over = np.flatnonzero(needed_bytes > cache_bytes)
        if shard.layout is None and len(over):
            unit = "row group" if manifest.format == "parquet" else "record batch"
            raise StoreRefusedError(
                f"Shard '{shard.path}', {unit} {over[0]}: decoding it takes up to {needed_bytes[over[0]]} bytes, "
                f"more than block_cache_bytes = {cache_bytes}. Write the shard in smaller pieces (row_group_size for "
                "Parquet), or as uncompressed Arrow, or raise block_cache_bytes.",
                shard=shard.path,
                block=int(over[0]),
            )


def _tables_path(index: Path, manifest: Manifest) -> Path:
    """The same rows lie elsewhere in a map than in storage, so their tables differ."""
    kind = "-far" if manifest.is_far else ""
    return index / "stores" / f"{manifest.fingerprint}-{INDEX_VERSION}{kind}"
