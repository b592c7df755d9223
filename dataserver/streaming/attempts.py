"""One attempt as this process serves it: what all its streams here share.

    plan N ──> pacing lets N go ──> seal N (ledger) ──> its micro-batches

Plans are made ahead and never seal anything. Acks are gathered and written together: one transaction for all ranks
that acknowledge at about the same time.
"""

import asyncio
import logging
from dataclasses import asdict

from dataserver.cursor import Cursor
from dataserver.errors import DataServerError, PreconditionError, RunNotFoundError, StaleAttemptError
from dataserver.ledger.interface import Attempt, Ledger, ProposedSeal, Run, Seal
from dataserver.ledger.totals import StepServed
from dataserver.planning.fingerprint import PLANNER_VERSION
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.streaming.contexts import RunContext
from dataserver.streaming.fetches import Fetches
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.once import Once
from dataserver.streaming.pacing import Pacing
from dataserver.streaming.supply import ReadyStep
from dataserver.streaming.threads import Threads

log = logging.getLogger(__name__)

# Plans and seals that are kept. Ranks are at most a few steps apart; one that reconnects may be further behind.
KEPT_STEPS = 32

# Acks that arrive within this time share a transaction. While every rank streams from here nobody waits for what the
# ledger knows, and they may be gathered for longer.
ACK_TICK_S = 0.003
LOCAL_ACK_TICK_S = 0.05

# Plans that are made ahead of the step that is being sent.
PLANS_AHEAD = 2

# How often the ledger is asked while a stream here waits for ranks elsewhere, and otherwise, to notice a newer attempt.
BUSY_POLL_S = 0.05
IDLE_POLL_S = 0.5

# Pause after the ledger failed; acks are kept meanwhile.
RETRY_S = 0.5


class LiveAttempt:
    """Plans, seals, pacing and acks of one attempt.

    `over` carries the error that ends all its streams. `local_ranks`: data-parallel rank of each world rank that
    streams from here.
    """

    def __init__(
        self,
        run: Run,
        attempt: Attempt,
        context: RunContext,
        *,
        ledger: Ledger,
        threads: Threads,
        metrics: Metrics,
        max_steps_ahead: int,
    ) -> None:
        self.run_name = run.name
        self.run_uid = run.uid
        self.attempt = attempt
        self.context = context
        self.pacing = Pacing(acked_steps=run.acked_steps, sealed_step=run.sealed_step, max_steps_ahead=max_steps_ahead)
        self.over: asyncio.Future[DataServerError] = asyncio.get_running_loop().create_future()
        self.local_ranks: dict[int, int] = {}
        self.fetches = Fetches(context.table, threads)
        self._ledger = ledger
        self._threads = threads
        self._metrics = metrics
        self._plans: Once[int, Plan | EndOfRun] = Once(KEPT_STEPS + max_steps_ahead)
        self._seals: Once[int, ReadyStep] = Once(KEPT_STEPS + max_steps_ahead)
        self._acks: dict[int, int] = {}
        self._acks_lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._attending = asyncio.get_running_loop().create_task(self._attend())

    # -- steps --------------------------------------------------------------------------------

    async def plan(self, step: int) -> Plan | EndOfRun:
        """The plan of `step`, made once in this process."""
        return await self._plans.get(step, lambda: self._make_plan(step))

    async def seal(self, step: int) -> ReadyStep:
        """Seal `step`, or read how it was sealed; once in this process. Only for a step that pacing permits."""
        return await self._seals.get(step, lambda: self._make_seal(step))

    def seal_meanwhile(self, step: int) -> None:
        """Begin to seal `step` without waiting for it, if pacing permits it and its plan is there."""
        if isinstance(self._plans.peek(step), Plan) and self.pacing.permits(step):
            self._seals.start(step, lambda: self._make_seal(step))

    def prefetch(self, after: int) -> None:
        """Start planning the steps after `after`. Seals nothing."""
        for step in range(after + 1, after + 1 + max(PLANS_AHEAD, self.fetches.plans_ahead)):
            before = self._plans.peek(step - 1)
            if isinstance(before, EndOfRun) or (before is not None and before.last):
                return
            self._plans.start(step, lambda step=step: self._make_plan(step))  # type: ignore[misc]

    async def _make_plan(self, step: int) -> Plan | EndOfRun:
        begin = await self._begin_of(step)
        plan = await self._threads.plan(
            self.context.planner.plan, begin, self.attempt.batch, self.attempt.dp_world_size
        )
        if isinstance(plan, Plan):
            self.fetches.start(plan, set(self.local_ranks.values()))
        return plan

    async def _begin_of(self, step: int) -> Cursor:
        if step == self.attempt.base.step + 1:
            return self.attempt.base
        before = self._plans.peek(step - 1)
        if before is not None:
            return before.end
        if step - 1 > self.pacing.sealed_step:
            return (await self.plan(step - 1)).end
        seal = await self._threads.ledger(self._ledger.get_seal, self.run_uid, step - 1)
        if seal is None:
            raise PreconditionError(
                f"run {self.run_name!r}: step {step} was asked for, but step {step - 1} is not sealed"
            )
        return seal.end

    async def _make_seal(self, step: int) -> ReadyStep:
        plan = await self.plan(step)
        await self._threads.plan(self.context.check_unchanged)
        ends = isinstance(plan, EndOfRun)
        proposed = ProposedSeal(
            step=step,
            end=plan.end,
            plan_digest="" if isinstance(plan, EndOfRun) else plan.digest,
            planner_version=PLANNER_VERSION,
            last=ends or (isinstance(plan, Plan) and plan.last),
            end_of_run=ends,
            served=None if isinstance(plan, EndOfRun) else self._served(plan),
        )
        try:
            seal = await self._threads.ledger(self._ledger.seal, self.run_uid, self.attempt.key, proposed)
        except StaleAttemptError as error:
            self.end(error)
            raise
        self.pacing.note_sealed(step)
        self._count_sealed(seal)
        return ReadyStep(plan=plan, sync_weights=seal.sync_weights)

    def _served(self, plan: Plan) -> StepServed:
        names = (source.store for source in self.context.order.sources)
        return StepServed(figures=plan.figures, store_tokens=dict(zip(names, plan.source_tokens(), strict=False)))

    def _count_sealed(self, seal: Seal) -> None:
        if seal.totals is None:
            return
        self._metrics.steps_sealed.inc()
        self._metrics.sealed_step.labels(self.run_name).set(seal.step)
        for figure, value in asdict(seal.totals.last).items():
            self._metrics.packing.labels(self.run_name, figure).set(value)
        for store, tokens in seal.totals.store_tokens.items():
            self._metrics.run_tokens.labels(self.run_name, store).set(tokens)

    # -- acks and progress --------------------------------------------------------------------

    def acknowledge(self, world_rank: int, step: int) -> None:
        """Note that a rank consumed `step` and all before it. The ledger is told soon."""
        if self.pacing.acknowledge(world_rank, step):
            self._acks[world_rank] = step
            self._wake.set()

    async def flush_acks(self) -> None:
        """Tell the ledger all acks that it was not told yet."""
        async with self._acks_lock:
            acks, self._acks = self._acks, {}
            if not acks:
                return
            try:
                progress = await self._threads.ledger(self._ledger.record_acks, self.run_uid, self.attempt.key, acks)
            except (PreconditionError, RunNotFoundError):
                raise
            except Exception:
                self._acks = acks | self._acks
                raise
            self.pacing.update(progress)
            self._metrics.consumed_step.labels(self.run_name).set(self.pacing.consumed_step)

    def end(self, error: DataServerError) -> None:
        """End all streams of this attempt with `error`. The first error stays."""
        if not self.over.done():
            self.over.set_result(error)

    def close(self) -> None:
        """Stop all work for this attempt. Idempotent."""
        self._attending.cancel()
        self._plans.cancel()
        self.fetches.close()
        self._seals.cancel()

    async def _attend(self) -> None:
        """Write acks and look for progress elsewhere, until the attempt is over."""
        while not self.over.done():
            await self._pause()
            try:
                if self._acks:
                    await self.flush_acks()
                else:
                    await self._poll()
            except (StaleAttemptError, RunNotFoundError) as error:
                self.end(error)
            except DataServerError as error:
                log.warning("run %s attempt %d: %s", self.run_name, self.attempt.number, error.message)
                await asyncio.sleep(RETRY_S)
            except Exception:
                log.exception("run %s attempt %d: looking after it failed", self.run_name, self.attempt.number)
                await asyncio.sleep(RETRY_S)

    async def _pause(self) -> None:
        elsewhere = self.pacing.waiting and not self.local_ranks.keys() >= set(self.pacing.laggards())
        try:
            async with asyncio.timeout(BUSY_POLL_S if elsewhere else IDLE_POLL_S):
                await self._wake.wait()
            all_here = len(self.local_ranks) == self.attempt.world_size
            await asyncio.sleep(LOCAL_ACK_TICK_S if all_here else ACK_TICK_S)
        except TimeoutError:
            pass
        self._wake.clear()

    async def _poll(self) -> None:
        progress = await self._threads.ledger(self._ledger.progress, self.run_uid)
        if progress.attempt != self.attempt.key:
            raise StaleAttemptError(
                f"run {self.run_name!r}: attempt {self.attempt.number} is over, attempt {progress.attempt} has begun",
                attempt=progress.attempt.number,
            )
        self.pacing.update(progress)
