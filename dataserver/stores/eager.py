"""Eager admission: every row is checked before the store is served, and what was found out is kept.

manifest of this place? ── sizes, versions agree ──> map the index   (warm)
                        └── no ──> scan ──> write index, then manifest ──> map it
"""

from dataclasses import replace
from pathlib import Path

from dataserver.stores.discovery import Discovery
from dataserver.stores.index import Building, write_atomically
from dataserver.stores.index_use import mark_used
from dataserver.stores.manifest import INDEX_VERSION, Manifest
from dataserver.stores.place import Place
from dataserver.stores.progress import ReportBytes
from dataserver.stores.spans import FetchTables
from dataserver.stores.tables import Tables


def admit_eagerly(place: Place, discovery: Discovery, progress: ReportBytes) -> tuple[Manifest, Tables]:
    """Manifest and index of the store, from the index directory if they are there.

    Raises `StoreRefusedError` for the first rule that the store breaks.
    """
    manifest, tables = _find(place, discovery) or _admit(place, discovery, progress)
    if discovery.copies is not None:
        # Gone through once, here: the thread that serves rows must not wait for it.
        for shard in manifest.shards:
            discovery.copies.open(shard.path)
    return manifest, tables


def _find(place: Place, discovery: Discovery) -> tuple[Manifest, Tables] | None:
    """What was admitted before; None if nothing was, or it no longer agrees with the files or the index."""
    manifest = place.recorded(discovery)
    tables = None if manifest is None else _open_tables(place.index, discovery, manifest)
    return None if manifest is None or tables is None else (manifest, tables)


def _admit(place: Place, discovery: Discovery, progress: ReportBytes) -> tuple[Manifest, Tables]:
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
    if tables is not None and manifest.is_far:
        fetch = FetchTables.open(directory, manifest)
        tables = None if fetch is None else replace(tables, fetch=fetch)
    if tables is not None:
        mark_used(directory)
    return tables


def _tables_path(index: Path, manifest: Manifest) -> Path:
    """The same rows lie elsewhere in a map than in storage, so their tables differ."""
    kind = "-far" if manifest.is_far else ""
    return index / "stores" / f"{manifest.fingerprint}-{INDEX_VERSION}{kind}"
