"""Opening a store: finding its files, then admitting them eagerly or lazily.

path ──discovery──> files ──┬─> every row checked, or found to have been (`eager`) ──> Store
                            └─> footers read, or found to have been (`lazy`) ────────> LazyStore
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dataserver.errors import StoreDamagedError, StoreRefusedError
from dataserver.storage import is_url
from dataserver.storage.disk_cache import DiskCache
from dataserver.stores.block_cache import BlockCache, shared_cache
from dataserver.stores.copies import JsonCopies
from dataserver.stores.discovery import Discovery
from dataserver.stores.eager import admit_eagerly
from dataserver.stores.index import default_index_dir
from dataserver.stores.manifest import Manifest
from dataserver.stores.place import Place, discover_at
from dataserver.stores.progress import ReportBytes, report_nothing
from dataserver.stores.schema import Admission, LossMask
from dataserver.stores.shard_rows import ShardRows
from dataserver.stores.store import Store
from dataserver.stores.tables import Tables


def open_store(
    path: str | Path,
    *,
    loss_mask: LossMask = LossMask.COLUMN,
    admission: Admission = Admission.EAGER,
    split: str | None = None,
    index_dir: Path | None = None,
    progress: ReportBytes | None = None,
    cache: BlockCache | None = None,
    storage_options: Mapping[str, str] | None = None,
    disk_cache: DiskCache | None = None,
) -> Store:
    """Open the store at `path`, a file, a directory or a URL of either; the first time every row is checked.

    With lazy `admission` only footers are read, and rows are checked when their block is first needed. `split`: the one
    to open of a saved `DatasetDict`. `index_dir`: where derived data goes, by default
    `~/.cache/dataserver/index`. `progress` is called with bytes done and bytes in all while rows are
    checked. `cache` holds decoded blocks, by default one of 1 GiB that all stores of the process share.
    For URLs, `storage_options` go to the storage, and `disk_cache` keeps what was fetched; without one
    every block is fetched when it is read.

    Raises `StoreNotFoundError`, `StoreRefusedError` for the first rule that the store breaks,
    `UnavailableError` while the storage is out of reach, and `InvalidConfigError` if the index cannot be written.
    """
    where = str(path).rstrip("/") if is_url(str(path)) else Path(path).absolute()
    index = default_index_dir() if index_dir is None else index_dir.absolute()
    options = dict(storage_options or {})
    try:
        discovery, where = discover_at(where, split, options)
        place = Place(
            where=where, options=options, index=index, loss_mask=LossMask(loss_mask), admission=Admission(admission)
        )
        opening = _Opening(place, _with_copies(discovery, place), cache or shared_cache(), disk_cache)
        if place.admission is Admission.LAZY:
            return opening.lazily()
        return opening.eagerly(progress or report_nothing)
    except OSError as error:
        raise StoreRefusedError(f"Pretokenized dataset at '{where}' cannot be read ({error}).") from error


def reopen_store(
    path: str | Path,
    loss_mask: LossMask,
    index_dir: Path,
    fingerprint: str,
    *,
    admission: Admission,
    storage_options: Mapping[str, str],
    cache_bytes: int,
    disk_cache: tuple[Path, int] | None,
) -> Store:
    """What a pickled store becomes; raises `StoreDamagedError` if it is no longer the same."""
    store = open_store(
        path,
        loss_mask=loss_mask,
        admission=admission,
        index_dir=index_dir,
        storage_options=storage_options,
        cache=shared_cache(cache_bytes),
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


@dataclass(frozen=True, slots=True)
class _Opening:
    """The files of a store, and the caches that its rows go through."""

    place: Place
    discovery: Discovery
    cache: BlockCache
    disk_cache: DiskCache | None

    def eagerly(self, progress: ReportBytes) -> Store:
        manifest, tables = admit_eagerly(self.place, self.discovery, progress)
        return Store(**self._parts(manifest, tables))

    def lazily(self) -> Store:
        # Imported here: stores that are mapped are served without pyarrow.
        from dataserver.stores.lazy import admit_lazily  # noqa: PLC0415
        from dataserver.stores.lazy_store import LazyStore  # noqa: PLC0415

        manifest, index = admit_lazily(self.place, self.discovery)
        return LazyStore(index=index, cache=self.cache, **self._parts(manifest, index.tables))

    def _parts(self, manifest: Manifest, tables: Tables) -> dict[str, Any]:
        """What both kinds of stores are made of."""
        _check_block_sizes(manifest, tables, self.cache.limit_bytes)
        kept = None if self.disk_cache is None else (self.disk_cache.directory, self.disk_cache.limit_bytes)
        return {
            "path": self.place.where,
            "index_dir": self.place.index,
            "discovery": self.discovery,
            "manifest": manifest,
            "tables": tables,
            "shard_rows": ShardRows(
                files=self.discovery.copies or self.discovery.files,
                manifest=manifest,
                tables=tables,
                cache=self.cache,
                disk_cache=self.disk_cache,
            ),
            "reopen": partial(
                reopen_store,
                admission=self.place.admission,
                storage_options=self.place.options,
                cache_bytes=self.cache.limit_bytes,
                disk_cache=kept,
            ),
        }


def _with_copies(discovery: Discovery, place: Place) -> Discovery:
    if discovery.format != "json":
        return discovery
    copies = JsonCopies(files=discovery.files, paths=discovery.paths, index=place.index, loss_mask=place.loss_mask)
    return replace(discovery, copies=copies)


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
