"""Blocks of planned steps, fetched and decoded before they are encoded.

    plan of a step ──start──> its blocks, a few at a time ──> block cache
    micro-batches ──encoded──> from what is held
                     └ a block of one is not there: loaded now, off the encoding thread, and tried again

So the one thread that encodes for all runs never waits for a storage. Where the cache is too small to hold the blocks
of one micro-batch together, the micro-batch is encoded where its blocks are loaded, one after the other.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any

import numpy as np

from dataserver.batching.encode import Encoded, encode_planned
from dataserver.batching.table import SourceTable
from dataserver.errors import DataServerError
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.run_spec import BatchSpec
from dataserver.stores.ahead import BlockRef, Wish
from dataserver.stores.block_cache import BlockKey, NotDecodedError, without_decoding
from dataserver.streaming.message_size import largest_message_bytes
from dataserver.streaming.threads import Threads

log = logging.getLogger(__name__)

# Loads ahead that a run has under way for steps that are due: enough to hide a storage's latency, and fewer than the
# threads that fetch from one store, so that what is needed now does not wait behind what is needed later.
LOADS_AHEAD = 24

# And for later steps. A window of blocks is wanted all at once; decoded all at once, it would keep steps that are due
# from the processor.
LOADS_FAR_AHEAD = 4

# Plans that are made ahead where blocks must be fetched: with steps of 20 ms and GETs of 30 ms, time for the blocks of
# a window, a few at a time.
PLANS_AHEAD = 32

# Of these, steps that are due: what is not there by then is loaded as fast as it goes.
STEPS_DUE = 8

# Steps whose blocks are wished for: those that are planned ahead, and those that ranks are reading.
STEPS_KEPT = PLANS_AHEAD + 2

# Rounds that are encoded together at most where blocks must be held for that: what one of them waits for, all wait for.
MOST_DECODED_TOGETHER = 4


class Fetches:
    """The blocks of a run's steps, `tables` by stage. Errors of what is loaded ahead show when it is needed."""

    def __init__(self, tables: Sequence[SourceTable], threads: Threads) -> None:
        self._tables = tuple(tables)
        self._threads = threads
        self._due, self._far = _Pace(LOADS_AHEAD), _Pace(LOADS_FAR_AHEAD)
        self._first: int | None = None
        self._wishes: dict[int, Wish] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def plans_ahead(self) -> int:
        """How many steps to plan ahead, so that they can be loaded; 0 where nothing is."""
        return PLANS_AHEAD if any(table.decodes for table in self._tables) else 0

    def needed(self, plan: Plan | EndOfRun, dp_ranks: Collection[int]) -> list[BlockRef]:
        """What these ranks will read of a step through blocks, each once, as rounds first read it. For any thread."""
        if isinstance(plan, EndOfRun) or not self._table_of(plan).decodes:
            return []
        parts = [ranks[rank] for ranks in plan.rounds for rank in dp_ranks]
        return self._table_of(plan).blocks(plan.samples.take(np.concatenate(parts))) if parts else []

    def start(self, plan: Plan, needed: Sequence[BlockRef]) -> None:
        """Begin to load what is `needed` of a step. A plan may come after the end of its attempt."""
        if self._closed or not self._table_of(plan).decodes:
            return
        for step in [step for step in self._wishes if step <= plan.step - STEPS_KEPT]:
            self._wishes.pop(step).close()
        self._first = plan.step if self._first is None else min(self._first, plan.step)
        is_due = plan.step < self._first + STEPS_DUE
        earlier, self._wishes[plan.step] = self._wishes.get(plan.step), Wish(needed)
        if earlier is not None:
            earlier.close()
        self._begin(self._load_all(plan.step, needed, self._due if is_due else self._far))
        due = plan.step - PLANS_AHEAD + STEPS_DUE
        if due in self._wishes:
            self._begin(self._load_all(due, self._wishes[due].refs, self._due))

    def together(self, plan: Plan, batch: BatchSpec, limit_bytes: int) -> int:
        """How many rounds of a step to encode together at most, so that their micro-batches come to `limit_bytes`.

        Those with images are large: one. Those that are read through blocks are a few, because they wait for each
        other's.
        """
        table, together = self._table_of(plan), 1
        if table.images is None:
            largest = largest_message_bytes(batch, table.token_bytes, weighted=table.is_weighted)
            together = max(1, limit_bytes // largest)
        return min(together, MOST_DECODED_TOGETHER) if table.decodes else together

    async def encode(
        self, plan: Plan, *, rounds: range, dp_rank: int, alignment: int, pad_to: int, sync_weights: bool
    ) -> Encoded:
        """`encode_planned`, with the blocks of each round loaded first if not all are held."""
        table = self._table_of(plan)
        encode = partial(
            encode_planned, plan, table, dp_rank=dp_rank, alignment=alignment, pad_to=pad_to, sync_weights=sync_weights
        )
        try:
            return await self._threads.encode(_from_what_is_held, partial(encode, rounds=rounds))
        except NotDecodedError:
            each = [self._encode_loaded(plan, encode, range(index, index + 1), dp_rank) for index in rounds]
            return Encoded.joined(await asyncio.gather(*each))

    def close(self) -> None:
        """Load no more. Idempotent."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        while self._wishes:
            self._wishes.popitem()[1].close()

    def _table_of(self, plan: Plan) -> SourceTable:
        return self._tables[plan.end.stage]

    async def _encode_loaded(self, plan: Plan, encode: Callable[..., Encoded], rounds: range, dp_rank: int) -> Encoded:
        """One round. Where the cache does not hold all its blocks at once, they are read one after the other."""
        samples = plan.samples.take(plan.rounds[rounds.start][dp_rank])
        refs = await self._threads.plan(self._table_of(plan).blocks, samples)
        await asyncio.gather(*(self._threads.fetch(ref.store, ref.load) for ref in refs if not ref.is_held))
        try:
            return await self._threads.encode(_from_what_is_held, partial(encode, rounds=rounds))
        except NotDecodedError:
            return await self._threads.fetch(refs[0].store, partial(encode, rounds=rounds))

    def _begin(self, loading: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(loading)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load_all(self, step: int, refs: Sequence[BlockRef], pace: "_Pace") -> None:
        # The steps of a window want the same blocks: each is asked for once.
        asked = [ref for ref in refs if ref.key not in pace.under_way and not ref.is_held]
        pace.under_way.update(ref.key for ref in asked)
        try:
            await asyncio.gather(*(self._load_ahead(ref, pace) for ref in asked))
        except DataServerError as error:
            log.info("step %d: loading its blocks ahead: %s", step, error.message)

    async def _load_ahead(self, ref: BlockRef, pace: "_Pace") -> None:
        try:
            async with pace.free:
                if not ref.is_held:
                    await self._threads.fetch(ref.store, ref.load_ahead)
        finally:
            pace.under_way.discard(ref.key)


class _Pace:
    """So many loads at a time; `under_way`: blocks that are being loaded, or wait for their turn."""

    def __init__(self, at_once: int) -> None:
        self.free = asyncio.Semaphore(at_once)
        self.under_way: set[BlockKey] = set()


def _from_what_is_held(encode: Callable[[], Encoded]) -> Encoded:
    with without_decoding():
        return encode()
