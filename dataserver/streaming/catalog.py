"""The stores that a server owns: by name, and never by a path from outside.

samples         admitted at start ───────────────────────────────> ready
conversations   coming ──rendered, admitted: `server.text_sources`──> ready
└──────────────────────────────────────────────> failed
"""

from collections.abc import Callable, Iterable, Mapping

from dataserver.batching.encode import prepare_encoding
from dataserver.config import ServerConfig
from dataserver.errors import StoreNotFoundError, StoreNotReadyError, StoreRefusedError
from dataserver.storage.disk_cache import DiskCache
from dataserver.stores import (
    Admission,
    BlockCache,
    Figures,
    LossMask,
    Store,
    default_disk_cache_dir,
    open_store,
)
from dataserver.wire.store_info import RenderingInfo

# Name of the store, bytes read so far, bytes in all.
ReportStoreBytes = Callable[[str, int, int], None]


class StoreCatalog:
    """Stores by name: those that are ready, and those that are `coming`, being rendered."""

    def __init__(self, stores: Mapping[str, Store], coming: Iterable[str] = ()) -> None:
        self._stores = dict(stores)
        self._coming = {name: RenderingInfo(stage="queued") for name in coming}
        self._faults: dict[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted({*self._stores, *self._coming, *self._faults}))

    @property
    def coming(self) -> tuple[str, ...]:
        """The names of those that are not rendered yet, in the order of the configuration."""
        return tuple(self._coming)

    def get(self, name: str) -> Store:
        """A store whose rows are served.

        Raises `StoreNotReadyError` while it is rendered, `StoreRefusedError` if that failed, and `StoreNotFoundError`.
        """
        store = self._stores.get(name)
        if store is not None:
            return store
        if (info := self.rendering(name)) is not None:
            raise StoreNotReadyError(
                f"store {name!r} is {info.text()}. What needs its rows begins when all are rendered",
                store=name, stage=info.stage, done=info.done, total=info.total,
            )  # fmt: skip
        if fault := self.fault(name):
            raise StoreRefusedError(
                f"store {name!r} was not rendered: {fault}; mend that, and start the server again, which goes on "
                "where it was",
                store=name,
            )
        raise StoreNotFoundError(
            f"this server has no store {name!r}; it has {', '.join(self.names) or 'none'}: "
            "correct the name, or serve the store with --store NAME=PATH",
            store=name,
        )

    def rendering(self, name: str) -> RenderingInfo | None:
        """How far a store is that is being rendered; None for any other."""
        return self._coming.get(name)

    def fault(self, name: str) -> str:
        """Why a store was not rendered; empty for any other."""
        return self._faults.get(name, "")

    def tell(self, name: str, info: RenderingInfo) -> None:
        """Note how far one that is coming is. Those that are queued come nearer as it does."""
        self._coming[name] = info
        for other, its in self._coming.items():
            if its.stage == "queued":
                self._coming[other] = RenderingInfo(stage="queued", done=info.done, total=info.total)

    def put_back(self, name: str) -> None:
        """Queue one again that was under way."""
        self._coming[name] = RenderingInfo(stage="queued")

    def admit(self, name: str, store: Store) -> None:
        """Serve one that was coming."""
        self._stores[name] = store
        del self._coming[name]

    def fail(self, name: str, fault: str) -> None:
        """Note why one that was coming does not come."""
        self._faults[name] = fault
        del self._coming[name]

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
    """Admit every configured store of samples, and have what reads it compiled; blocks.

    Raises what `open_store` raises, after closing what it opened. Stores of conversations are coming: see
    `server.text_sources`. `admitted` is told of each store as it is ready, `counted` of what comes of reads through the
    disk cache.
    """
    stores: dict[str, Store] = {}
    cache = BlockCache(config.block_cache_bytes)
    disk_cache = open_disk_cache(config, counted)
    try:
        prepare_encoding()
        for name, settings in config.stores.items():
            if settings.render is not None:
                continue
            stores[name] = open_store(
                settings.path,
                loss_mask=LossMask(settings.loss_mask),
                admission=Admission(settings.admission),
                split=settings.split,
                index_dir=config.index_dir,
                progress=_named(progress or _report_nothing, name),
                cache=cache,
                storage_options=settings.storage,
                disk_cache=disk_cache,
            )
            stores[name].prepare()
            if admitted is not None:
                admitted(name, stores[name])
    except BaseException:
        StoreCatalog(stores).close()
        raise
    return StoreCatalog(stores, [name for name, settings in config.stores.items() if settings.render is not None])


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
