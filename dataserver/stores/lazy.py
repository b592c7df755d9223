"""Lazy admission: only footers are read before the store is served.

manifest of this place? ── sizes, versions agree ──> map the index, with all that was filled in since   (warm)
                        └── no ──> footers ──> write index, then manifest ──> map it
"""

from functools import partial
from pathlib import Path

from dataserver.stores.discovery import Discovery
from dataserver.stores.footers import read_footers
from dataserver.stores.index import Building, write_atomically
from dataserver.stores.index_use import mark_used
from dataserver.stores.lazy_index import LazyIndex, lazy_path, open_lazy_index
from dataserver.stores.manifest import Manifest
from dataserver.stores.place import Place


def admit_lazily(place: Place, discovery: Discovery) -> tuple[Manifest, LazyIndex]:
    """Manifest and index of the store, from the index directory if they are there.

    Raises `StoreRefusedError` for what footers show, and for a store that has to be admitted eagerly.
    """
    manifest = place.recorded(discovery)
    index = None if manifest is None else _open(place, manifest)
    while manifest is None or index is None:
        # Again if someone deleted the index in between: it may be deleted at any time.
        with Building(place.index) as building:
            found = read_footers(discovery, store_path=str(place.where), loss_mask=place.loss_mask, building=building)
            # What stands there is kept: others may have filled in some of it.
            building.publish(lazy_path(place.index, found.fingerprint, place.where), partial(_is_index_of, found))
        write_atomically(place.manifest_path, found.to_json())
        manifest, index = found, _open(place, found)
    return manifest, index


def _open(place: Place, manifest: Manifest) -> LazyIndex | None:
    directory = lazy_path(place.index, manifest.fingerprint, place.where)
    index = open_lazy_index(directory, manifest)
    if index is not None:
        mark_used(directory)
    return index


def _is_index_of(manifest: Manifest, directory: Path) -> bool:
    return open_lazy_index(directory, manifest) is not None
