"""The stores that a server owns: opened at start, by name, and never by a path from outside."""

from collections.abc import Callable, Mapping
from pathlib import Path

from dataserver.config import ServerConfig, StoreConfig
from dataserver.errors import StoreNotFoundError
from dataserver.storage.disk_cache import DiskCache
from dataserver.stores import (
    Admission,
    BlockCache,
    Figures,
    LossMask,
    Store,
    default_disk_cache_dir,
    default_index_dir,
    open_store,
)

# Name of the store, bytes read so far, bytes in all.
ReportStoreBytes = Callable[[str, int, int], None]


class StoreCatalog:
    """Stores by name."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = dict(stores)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._stores))

    def get(self, name: str) -> Store:
        """Raises `StoreNotFoundError`, naming the stores that there are."""
        store = self._stores.get(name)
        if store is None:
            raise StoreNotFoundError(
                f"this server has no store {name!r}; it has {', '.join(self.names) or 'none'}: "
                "correct the name, or serve the store with --store NAME=PATH",
                store=name,
            )
        return store

    def close(self) -> None:
        """Close every store. Idempotent."""
        for store in self._stores.values():
            store.close()


def open_catalog(
    config: ServerConfig,
    *,
    progress: ReportStoreBytes | None = None,
    admitted: Callable[[str, Store], None] | None = None,
    counted: Callable[[str], object] = lambda _: None,
) -> StoreCatalog:
    """Admit every configured store; blocks. Raises what `open_store` raises, after closing what it opened.

    `admitted` is told of each store as it is ready, `counted` of what comes of reads through the disk cache.
    """
    stores: dict[str, Store] = {}
    cache = BlockCache(config.block_cache_bytes)
    disk_cache = open_disk_cache(config, counted)
    try:
        for name, settings in config.stores.items():
            stores[name] = open_store(
                _samples(name, settings, config, progress or _report_nothing),
                loss_mask=LossMask(settings.loss_mask),
                admission=Admission(settings.admission),
                split=settings.split,
                index_dir=config.index_dir,
                progress=_named(progress or _report_nothing, name),
                cache=cache,
                storage_options=settings.storage,
                disk_cache=disk_cache,
            )
            if admitted is not None:
                admitted(name, stores[name])
    except BaseException:
        StoreCatalog(stores).close()
        raise
    return StoreCatalog(stores)


def _samples(name: str, settings: StoreConfig, config: ServerConfig, progress: ReportStoreBytes) -> Path | str:
    """Where the samples of a store lie: conversations are rendered first."""
    if settings.render is None:
        return settings.path
    # Imported here: few servers render, and it takes a while.
    from dataserver.render import rendered  # noqa: PLC0415

    return rendered(
        settings.path,
        settings.render,
        (config.index_dir or default_index_dir()) / "rendered",
        storage_options=settings.storage,
        progress=_named(progress, name),
    )


def open_disk_cache(config: ServerConfig, counted: Callable[[str], object] = lambda _: None) -> DiskCache | None:
    """The cache of what is fetched from storages; None where none is wanted."""
    if not config.disk_cache_bytes:
        return None
    return DiskCache(config.disk_cache_dir or default_disk_cache_dir(), config.disk_cache_bytes, counted=counted)


def whole_figures(store: Store) -> Figures | None:
    """What is served of a store where no `max_length` cuts or drops anything, be it nothing; None: not known yet."""
    return None if store.admission is Admission.LAZY else store.figures(max(store.longest_row, 1))


def _named(progress: ReportStoreBytes, name: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(name, done, total)


def _report_nothing(_name: str, _done: int, _total: int) -> None:
    """Tell nobody."""
