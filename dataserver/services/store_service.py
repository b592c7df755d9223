"""`StoreService`: stores as they were admitted, and their rows for people to look at."""

from dataclasses import asdict
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidRequestError, OutOfRangeError
from dataserver.hosting import pages
from dataserver.hosting.call import Call
from dataserver.services import fields
from dataserver.stores import Admission, Store
from dataserver.stores.description import describe_store
from dataserver.streaming.catalog import StoreCatalog
from dataserver.streaming.threads import Threads
from dataserver.v1 import store_service_pb2 as pb
from dataserver.v1.store_service_pb2_grpc import StoreServiceServicer
from dataserver.wire.stores import store_to_proto

MOST_SAMPLES = 1000

# A token of a listed sample takes up to five bytes as a varint, its mask one, its weight four.
LISTED_TOKEN_BYTES = 10

# Figures of a store for one `max_length`; some kilobytes each, and milliseconds to compute.
KEPT_DESCRIPTIONS = 64


class StoreService(StoreServiceServicer):
    """Reads only, and only stores of the catalog."""

    def __init__(self, *, catalog: StoreCatalog, threads: Threads, max_message_bytes: int) -> None:
        self._catalog = catalog
        self._threads = threads
        self._max_message_bytes = max_message_bytes
        self._described = lru_cache(KEPT_DESCRIPTIONS)(describe_store)

    async def ListStores(self, request: pb.ListStoresRequest, call: Call) -> pb.ListStoresResponse:
        """List stores by name."""
        size = fields.page_size(request.page_size)
        after = pages.page_after("stores", request.page_token, "")
        names = [name for name in self._catalog.names if name > after]
        page = names[:size]
        return pb.ListStoresResponse(
            stores=[await self._shown(name, None) for name in page],
            next_page_token=pages.page_token("stores", page[-1]) if len(names) > size else "",
        )

    async def GetStore(self, request: pb.GetStoreRequest, call: Call) -> pb.GetStoreResponse:
        """Show one store."""
        return pb.GetStoreResponse(store=await self._shown(request.store, fields.max_length(request.max_length)))

    async def ListSamples(self, request: pb.ListSamplesRequest, call: Call) -> pb.ListSamplesResponse:
        """Read rows."""
        store = self._catalog.get(request.store)
        bound = fields.max_length(request.max_length)
        begin, end = request.begin_row, request.end_row
        if not 0 <= begin < store.rows:
            raise OutOfRangeError(f"begin_row = {begin}: store {request.store!r} has rows 0 to {store.rows - 1}")
        if not begin < end <= begin + MOST_SAMPLES:
            raise InvalidRequestError(f"end_row = {end}: give {begin + 1} to {begin + MOST_SAMPLES}")
        rows = np.arange(begin, min(end, store.rows), dtype=np.int64)
        return pb.ListSamplesResponse(samples=await self._threads.inspect(self._samples, store, rows, bound))

    async def _shown(self, name: str, bound: int | None) -> pb.Store:
        if (info := self._catalog.rendering(name)) is not None:
            return pb.Store(name=name, state="rendering", rendering=pb.Rendering(**asdict(info)))
        if fault := self._catalog.fault(name):
            return pb.Store(name=name, state="failed", fault=fault)
        store = self._catalog.get(name)
        # How far a lazily admitted store is known changes.
        describe = self._described if store.admission is Admission.EAGER else describe_store
        return store_to_proto(await self._threads.inspect(describe, name, store, bound))

    def _samples(self, store: Store, rows: NDArray[np.int64], bound: int | None) -> list[pb.Sample]:
        tokens = int(np.minimum(store.lengths_of(rows), bound or store.longest_row).sum())
        if tokens * LISTED_TOKEN_BYTES > self._max_message_bytes:
            raise InvalidRequestError(
                f"rows {rows[0]} to {rows[-1]} hold {tokens} tokens, too many for one answer of at most "
                f"{self._max_message_bytes} bytes: ask for fewer rows"
            )
        return _read_samples(store, rows, bound)


def _read_samples(store: Store, rows: NDArray[np.int64], bound: int | None) -> list[pb.Sample]:
    numbers = rows.tolist()
    longest = bound or max(store.longest_row, 1)
    reasons = store.reasons(numbers[0], numbers[-1] + 1, longest)
    shapes = store.tables.images.counts(rows).tolist()
    read = store.read_rows(rows, max_length=longest, images=False)
    return [
        pb.Sample(
            row=number,
            kept=reason == "",
            reason=reason,
            input_ids=row.input_ids.tolist(),
            loss_mask=row.loss_mask.astype(bool).tolist(),
            loss_weight=None if row.loss_weight is None else row.loss_weight.tolist(),
            images=images,
            patches=patches,
        )
        for number, row, reason, (images, patches) in zip(numbers, read, reasons, shapes, strict=True)
    ]
