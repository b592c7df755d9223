"""Opening a store: by its manifest if nothing changed since, by the eager pass if not.

discover ──> manifest of this path? ── sizes, versions agree ──> map the index   (warm)
                                   └── no ──> scan ──> write index, then manifest ──> map it
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import xxhash

from dataserver.errors import StoreDamagedError, StoreRefusedError
from dataserver.stores.block_cache import BlockCache, shared_cache
from dataserver.stores.copies import JsonCopies
from dataserver.stores.discovery import Discovery, discover
from dataserver.stores.index import Building, default_index_dir, write_atomically
from dataserver.stores.manifest import INDEX_VERSION, Manifest
from dataserver.stores.progress import ReportBytes, report_nothing
from dataserver.stores.schema import LossMask
from dataserver.stores.store import Store
from dataserver.stores.tables import Tables


def open_store(
    path: str | Path,
    *,
    loss_mask: LossMask = LossMask.COLUMN,
    index_dir: Path | None = None,
    progress: ReportBytes | None = None,
    cache: BlockCache | None = None,
) -> Store:
    """Open the store at `path`, a file or a directory; the first time every row is checked.

    `index_dir`: where derived data goes, by default `~/.cache/dataserver/index`. `progress` is
    called with bytes done and bytes in all while rows are checked. `cache` holds decoded blocks, by
    default one of 1 GiB that all stores of the process share.

    Raises `StoreNotFoundError`, `StoreRefusedError` for the first rule that the store breaks, and
    `InvalidConfigError` if the index cannot be written.
    """
    if "://" in str(path):
        raise StoreRefusedError(f"'{path}' is a URL. Only stores on local disks are read yet: give a path.")
    root = Path(path).absolute()
    loss_mask = LossMask(loss_mask)
    index = default_index_dir() if index_dir is None else index_dir.absolute()
    try:
        discovery = _with_copies(discover(root), index, loss_mask)
        admitted = _find(root, index, discovery, loss_mask)
        if admitted is None:
            admitted = _admit(root, index, discovery, loss_mask, progress or report_nothing)
    except OSError as error:
        raise StoreRefusedError(f"Pretokenized dataset at '{root}' cannot be read ({error}).") from error
    manifest, tables = admitted
    cache = cache or shared_cache()
    _check_block_sizes(manifest, tables, cache.limit_bytes)
    return Store(
        path=root,
        index_dir=index,
        discovery=discovery,
        manifest=manifest,
        tables=tables,
        cache=cache,
        reopen=reopen_store,
    )


def reopen_store(path: Path, loss_mask: LossMask, index_dir: Path, fingerprint: str) -> Store:
    """What a pickled store becomes; raises `StoreDamagedError` if it is no longer the same."""
    store = open_store(path, loss_mask=loss_mask, index_dir=index_dir)
    if store.fingerprint != fingerprint:
        raise StoreDamagedError(
            f"The store at '{path}' changed: its fingerprint was {fingerprint} and is {store.fingerprint}."
        )
    return store


def _with_copies(discovery: Discovery, index: Path, loss_mask: LossMask) -> Discovery:
    if discovery.format != "json":
        return discovery
    copies = JsonCopies(files=discovery.files, paths=discovery.paths, index=index, loss_mask=loss_mask)
    return replace(discovery, copies=copies)


def _find(root: Path, index: Path, discovery: Discovery, loss_mask: LossMask) -> tuple[Manifest, Tables] | None:
    """What was admitted before; None if nothing was, or it no longer agrees with the files or the index."""
    try:
        text = _manifest_path(root, index, loss_mask).read_text(encoding="utf-8")
        manifest = Manifest.from_json(text)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if tuple(shard.path for shard in manifest.shards) != discovery.paths:
        return None
    if any(discovery.files.stat(shard.path) != shard.stamp for shard in manifest.shards):
        return None
    tables = _open_tables(index, discovery, manifest)
    return None if tables is None else (manifest, tables)


def _admit(
    root: Path, index: Path, discovery: Discovery, loss_mask: LossMask, progress: ReportBytes
) -> tuple[Manifest, Tables]:
    # Imported here: a warm open needs no pyarrow.
    from dataserver.stores.scan import scan_store  # noqa: PLC0415

    tables = None
    while tables is None:
        # Again if someone deleted the index in between: it may be deleted at any time.
        with Building(index) as building:
            manifest = scan_store(discovery, store_path=root, loss_mask=loss_mask, building=building, progress=progress)
            building.publish(_tables_path(index, manifest))
        write_atomically(_manifest_path(root, index, loss_mask), manifest.to_json())
        tables = _open_tables(index, discovery, manifest)
    return manifest, tables


def _open_tables(index: Path, discovery: Discovery, manifest: Manifest) -> Tables | None:
    if discovery.copies is not None and not discovery.copies.pin(manifest):
        return None
    return Tables.open(
        _tables_path(index, manifest),
        rows=manifest.rows,
        shards=len(manifest.shards),
        digests=manifest.array_digests,
    )


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
    return index / "stores" / f"{manifest.fingerprint}-{INDEX_VERSION}"


def _manifest_path(root: Path, index: Path, loss_mask: LossMask) -> Path:
    key = json.dumps([str(root), str(loss_mask), INDEX_VERSION])
    return index / "manifests" / f"{xxhash.xxh3_128_hexdigest(key.encode())}.json"
