"""`StoreService`: stores as they were admitted, and their rows for people to look at."""

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidRequestError, OutOfRangeError
from dataserver.services import fields, pages
from dataserver.stores import Store
from dataserver.streaming.call import Call
from dataserver.streaming.catalog import StoreCatalog, whole_figures
from dataserver.streaming.threads import Threads
from dataserver.v1 import store_service_pb2 as pb
from dataserver.v1.store_service_pb2_grpc import StoreServiceServicer

MOST_SAMPLES = 1000

# A token of a listed sample takes up to five bytes as a varint, its mask one.
LISTED_TOKEN_BYTES = 6


class StoreService(StoreServiceServicer):
    """Reads only, and only stores of the catalog."""

    def __init__(self, *, catalog: StoreCatalog, threads: Threads, max_message_bytes: int) -> None:
        self._catalog = catalog
        self._threads = threads
        self._max_message_bytes = max_message_bytes

    async def ListStores(self, request: pb.ListStoresRequest, call: Call) -> pb.ListStoresResponse:
        """List stores by name."""
        size = fields.page_size(request.page_size)
        after = pages.page_after("stores", request.page_token, "")
        names = [name for name in self._catalog.names if name > after]
        page = names[:size]
        return pb.ListStoresResponse(
            stores=[await self._threads.inspect(_store, name, self._catalog.get(name), None) for name in page],
            next_page_token=pages.page_token("stores", page[-1]) if len(names) > size else "",
        )

    async def GetStore(self, request: pb.GetStoreRequest, call: Call) -> pb.GetStoreResponse:
        """Show one store."""
        store = self._catalog.get(request.store)
        bound = fields.max_length(request.max_length)
        return pb.GetStoreResponse(store=await self._threads.inspect(_store, request.store, store, bound))

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
        tokens = int(np.minimum(store.lengths()[rows], bound or store.longest_row).sum())
        if tokens * LISTED_TOKEN_BYTES > self._max_message_bytes:
            raise InvalidRequestError(
                f"rows {begin} to {end - 1} hold {tokens} tokens, too many for one answer of at most "
                f"{self._max_message_bytes} bytes: ask for fewer rows"
            )
        return pb.ListSamplesResponse(samples=await self._threads.inspect(_samples, store, rows, bound))


def _store(name: str, store: Store, bound: int | None) -> pb.Store:
    figures = whole_figures(store) if bound is None else store.figures(bound)
    return pb.Store(
        name=name,
        fingerprint=store.fingerprint,
        format=store.format,
        rows=store.rows,
        tokens=store.tokens,
        longest_row=store.longest_row,
        max_token=store.max_token,
        token_bytes=store.token_bytes,
        columns=[pb.Column(name=column.name, type=column.type) for column in store.columns],
        shards=[pb.Shard(path=s.path, size=s.size, rows=s.rows, digest=s.digest) for s in store.shards],
        ignored=[pb.IgnoredPath(path=ignored.path, reason=ignored.reason) for ignored in store.ignored],
        dropped=figures.dropped,
        kept_rows=figures.rows,
        kept_tokens=figures.kept_tokens,
        cut_tokens=figures.cut_tokens,
        length_histogram=[
            pb.LengthBucket(begin=bucket.begin, end=bucket.end, rows=bucket.rows) for bucket in store.length_histogram()
        ],
        links=[pb.Link(path=path, target=target) for path, target in store.links],
    )


def _samples(store: Store, rows: NDArray[np.int64], bound: int | None) -> list[pb.Sample]:
    numbers = rows.tolist()
    longest = bound or max(store.longest_row, 1)
    reasons = store.reasons(numbers[0], numbers[-1] + 1, longest)
    return [
        pb.Sample(
            row=number,
            kept=reason == "",
            reason=reason,
            input_ids=row.input_ids.tolist(),
            loss_mask=row.loss_mask.astype(bool).tolist(),
        )
        for number, row, reason in zip(numbers, store.read_rows(rows, max_length=longest), reasons, strict=True)
    ]
