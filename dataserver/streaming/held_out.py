"""Held-out stores, read in order: nothing is sealed, and nobody is waited for but the stream's own credits.

Where a step begins says everything about it, so any server goes on where another one stopped; and all ranks that read
here share their plans.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from dataserver.cursor import Cursor
from dataserver.errors import DataServerError, InvalidRequestError
from dataserver.eval_spec import EvalSpec
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.run_spec import BatchSpec
from dataserver.stores.ahead import BlockRef
from dataserver.streaming.answers import encode_opened
from dataserver.streaming.contexts import RunContext, RunContexts
from dataserver.streaming.fetches import Fetches
from dataserver.streaming.known_rows import planned
from dataserver.streaming.once import Once
from dataserver.streaming.opening import EvalOpening
from dataserver.streaming.registry import Registry, Session
from dataserver.streaming.supply import ReadyStep, Stamp
from dataserver.streaming.threads import Threads

# Readings that are kept, a reading being a spec and a number of ranks, and plans of each. Ranks are a few steps apart.
KEPT_READINGS = 16
KEPT_PLANS = 32


class Reading:
    """A held-out store as `dp_world_size` ranks read it. Plans are made once in this process."""

    def __init__(self, spec: EvalSpec, dp_world_size: int, context: RunContext, threads: Threads) -> None:
        self.batch = spec.as_run().batch
        self._vocab_size = spec.vocab_size
        self.context = context
        self._dp_world_size = dp_world_size
        self._threads = threads
        self._plans: Once[Cursor, Plan | EndOfRun] = Once(KEPT_PLANS)
        self.fetches = self._new_fetches()
        self._readers: Counter[int] = Counter()

    async def plan(self, begin: Cursor) -> Plan | EndOfRun:
        """The step that begins at `begin`. Raises `StoreDamagedError` when the store changed on disk."""
        return await self._plans.get(begin, lambda: self._make_plan(begin))

    def prefetch(self, begin: Cursor) -> None:
        """Start planning the step that begins at `begin`."""
        self._plans.start(begin, lambda: self._make_plan(begin))

    def enter(self, dp_rank: int) -> None:
        """Count a stream of this rank in. The first one begins to load ahead, as it does after a last one left."""
        if not self._readers:
            self.fetches = self._new_fetches()
        self._readers[dp_rank] += 1

    def leave(self, dp_rank: int) -> None:
        """Count it out again; with the last one nothing more is loaded ahead."""
        self._readers = self._readers - Counter((dp_rank,))
        if not self._readers:
            self.fetches.close()

    def _new_fetches(self) -> Fetches:
        """What is closed loads nothing any more."""
        return Fetches([self.context.stages[0].table], self._threads)

    async def _make_plan(self, begin: Cursor) -> Plan | EndOfRun:
        plan, needed = await planned(self._threads, partial(self._planned, begin))
        if isinstance(plan, Plan):
            self.fetches.start(plan, needed)
        return plan

    def _planned(self, begin: Cursor) -> tuple[Plan | EndOfRun, list[BlockRef]]:
        self.context.stages[0].check_unchanged()
        plan = self.context.plan(begin, self.batch, self._dp_world_size, vocab_size=self._vocab_size)
        return plan, self.fetches.needed(plan, set(self._readers))


class HeldOuts:
    """All held-out stores that are read here."""

    def __init__(self, *, registry: Registry, contexts: RunContexts, threads: Threads, max_message_bytes: int) -> None:
        self._registry = registry
        self._contexts = contexts
        self._threads = threads
        self._max_message_bytes = max_message_bytes
        self._readings: Once[tuple[str, int], Reading] = Once(KEPT_READINGS)

    async def open(self, opening: EvalOpening, session: Session) -> "HeldOutSupply":
        """Begin to read, or go on. Raises what the store or the spec is refused with."""
        self._registry.refuse_while_draining()
        key = (opening.spec.model_dump_json(), opening.dp_world_size)
        reading = await self._readings.get(key, lambda: self._make_reading(opening.spec, opening.dp_world_size))
        begin = opening.begin or reading.context.planner.initial_cursor()
        reading.context.check_cursor(begin)
        self._registry.refuse_while_draining()
        self._registry.seat_reader(session)
        reading.enter(opening.dp_rank)
        return HeldOutSupply(opening, begin, reading, session, self._registry)

    async def _make_reading(self, spec: EvalSpec, dp_world_size: int) -> Reading:
        as_run = spec.as_run()
        context = await self._contexts.of_order(as_run.order, most_samples=spec.max_samples)
        context.check_vocabulary(spec.vocab_size)
        context.check_images(allowed=as_run.images)
        context.check_batch(as_run.batch, self._max_message_bytes, short_steps=True)
        return Reading(spec, dp_world_size, context, self._threads)


class HeldOutSupply:
    """Implements `Supply` for one rank of those that read."""

    def __init__(
        self, opening: EvalOpening, begin: Cursor, reading: Reading, session: Session, registry: Registry
    ) -> None:
        self._opening = opening
        self._at = begin
        self._reading = reading
        self._session = session
        self._registry = registry
        self._over: asyncio.Future[DataServerError] = asyncio.get_running_loop().create_future()

    @property
    def name(self) -> str:
        """The store."""
        return f"held-out store {self._opening.spec.store!r}"

    @property
    def rank(self) -> str:
        """The data-parallel rank."""
        return f"dp rank {self._opening.dp_rank}"

    @property
    def step(self) -> int:
        """Of the reading."""
        return self._at.step

    @property
    def dp_rank(self) -> int:
        """As the rank opened."""
        return self._opening.dp_rank

    @property
    def batch(self) -> BatchSpec:
        """The spec's."""
        return self._reading.batch

    @property
    def fetches(self) -> Fetches:
        """The reading's."""
        return self._reading.fetches

    @property
    def over(self) -> "asyncio.Future[DataServerError]":
        """Never done: there is no attempt that could be over."""
        return self._over

    async def opened(self) -> bytes:
        """Where this stream begins."""
        return encode_opened(self._at, self._registry.server_id)

    async def next(self, credit: Callable[[], Awaitable[None]]) -> ReadyStep:
        """The step that follows."""
        plan = await self._reading.plan(self._at)
        if isinstance(plan, Plan):
            await credit()
            self._at = plan.end
            self._reading.prefetch(self._at)
        return ReadyStep(plan=plan, stamp=Stamp(sync_weights=False))

    def make_ready(self) -> None:
        """Its plan is on the way already."""

    def ready_next(self) -> None:
        """None: a step is one micro-batch, and nothing waits between them."""

    def acknowledge(self, step: int, offer: int) -> None:
        """Nothing is consumed for good here."""
        raise InvalidRequestError(f"ack of step {step}, offer {offer}, in an EVAL stream: it takes none, leave it out")

    async def release(self) -> None:
        """Leave."""
        self._registry.unseat_reader(self._session)
        self._reading.leave(self._opening.dp_rank)
