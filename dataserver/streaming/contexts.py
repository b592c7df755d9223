"""An order and this server's stores: the planner and the sample table of a run.

Building one reads the stores' indexes and so takes a while for large stores; it happens once per order spec, off
the event loop.
"""

from dataclasses import dataclass

from dataserver.batching.table import SourceTable
from dataserver.cursor import Cursor
from dataserver.errors import ForeignCursorError, InvalidSpecError
from dataserver.ledger.interface import Run
from dataserver.planning.fingerprint import differing_fields, order_fingerprint
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, check_fits
from dataserver.sampling.build import sample_order
from dataserver.sampling.union import plain_union
from dataserver.stores import Store, StoreView
from dataserver.streaming.catalog import StoreCatalog
from dataserver.streaming.once import Once
from dataserver.streaming.samplers import sampler_of
from dataserver.streaming.threads import Threads

# Orders whose tables are kept. A table holds a few bytes per row at most.
KEPT_CONTEXTS = 32

# Step, round, checksum and the field headers of a micro-batch.
MESSAGE_OVERHEAD_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What serving a run needs besides the ledger."""

    order: OrderSpec
    stores: tuple[Store, ...]
    views: tuple[StoreView, ...]
    table: SourceTable
    planner: Planner
    order_fingerprint: str
    epoch_samples: int

    def check_unchanged(self) -> None:
        """Raise `StoreDamagedError` if a store changed since it was admitted. Blocks on the file system."""
        for store in self.stores:
            store.check_unchanged()

    def check_vocabulary(self, spec: RunSpec) -> None:
        """Raise `InvalidSpecError` for a store with a token that the model does not know."""
        if spec.vocab_size is None:
            return
        for source, store in zip(spec.order.sources, self.stores, strict=True):
            if store.max_token >= spec.vocab_size:
                raise InvalidSpecError(
                    f"store {source.store!r} row {store.max_token_row} holds token {store.max_token}, "
                    f"but vocab_size = {spec.vocab_size}: is this the right tokenizer?",
                    store=source.store,
                    row=store.max_token_row,
                )

    def check_batch(self, batch: BatchSpec, max_message_bytes: int) -> None:
        """Raise `InvalidSpecError` when a longest sample or a largest micro-batch would not fit."""
        try:
            check_fits(self.order, batch)
        except ValueError as error:
            raise InvalidSpecError(str(error)) from error
        largest = largest_message_bytes(batch, self.table.token_bytes)
        if largest > max_message_bytes:
            raise InvalidSpecError(
                f"micro_batch_tokens = {batch.micro_batch_tokens} at {self.table.token_bytes} bytes a token makes "
                f"messages of up to {largest} bytes, above the server's max_message_bytes = {max_message_bytes}: "
                "lower the one or raise the other"
            )

    def check_same_order(self, run: Run) -> None:
        """Raise `ForeignCursorError` when the run was created over other stores or by other ordering code."""
        if run.order_fingerprint != self.order_fingerprint:
            fields = ", ".join(differing_fields(run.order_fingerprint, self.order_fingerprint))
            raise ForeignCursorError(
                f"run {run.name!r} was created with another order than this server makes of its spec now; "
                f"what differs: {fields}. Serve the stores as they were, or create another run",
                fields=fields,
            )

    def check_cursor(self, cursor: Cursor) -> None:
        """Raise `ForeignCursorError` or `InvalidRequestError` for a cursor that no step of this order ends at."""
        self.planner.check(cursor)


def largest_message_bytes(batch: BatchSpec, token_bytes: int) -> int:
    """Bound on the bytes of one micro-batch.

    Tokens, one mask bit each, and lengths: a varint of one byte covers at least two tokens, as no sample is shorter.
    """
    tokens = batch.micro_batch_tokens
    return tokens * token_bytes + -(-tokens // 8) + -(-tokens // 2) + MESSAGE_OVERHEAD_BYTES


class RunContexts:
    """Contexts by order spec."""

    def __init__(self, catalog: StoreCatalog, threads: Threads) -> None:
        self._catalog = catalog
        self._threads = threads
        self._built: Once[tuple[str, int | None], RunContext] = Once(KEPT_CONTEXTS)

    async def of_order(self, order: OrderSpec, *, most_samples: int | None = None) -> RunContext:
        """The context of an order, or of the first `most_samples` of each of its sources.

        Raises `StoreNotFoundError`, `StoreRefusedError`, `InvalidSpecError`.
        """
        return await self._built.get(
            (order.model_dump_json(), most_samples),
            lambda: self._threads.store(build_context, order, self._catalog, most_samples),
        )

    async def of_run(self, run: Run) -> RunContext:
        """The context of a run; raises `ForeignCursorError` too, when the stores are not what they were."""
        context = await self.of_order(run.spec.order)
        context.check_same_order(run)
        return context


def build_context(order: OrderSpec, catalog: StoreCatalog, most_samples: int | None = None) -> RunContext:
    """Blocks while the stores' indexes are read."""
    stores = tuple(catalog.get(source.store) for source in order.sources)
    views = tuple(store.view(order.max_length, order.long_rows) for store in stores)
    table = SourceTable(views, max(store.token_bytes for store in stores))
    sampler = sampler_of(order)
    samples = sample_order(order, views, sampler=sampler)
    if most_samples is not None:
        samples = plain_union(tuple(min(size, most_samples) for size in table.sizes), order.seed, order.shuffle)
    identity = sampler.identity if sampler else ""
    fingerprint = order_fingerprint(order, [store.fingerprint for store in stores], sampler=identity)
    return RunContext(
        order=order,
        stores=stores,
        views=views,
        table=table,
        planner=Planner.of_order(samples, table, fingerprint),
        order_fingerprint=fingerprint,
        epoch_samples=samples.epoch_size,
    )
