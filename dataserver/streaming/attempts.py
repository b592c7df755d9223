"""One attempt as this process serves it: what all its streams here share.

    plan N ──> pacing lets N go ──> seal N (ledger) ──> its micro-batches

Plans are made ahead and never seal anything. A seal says by which stages it was planned; where the ledger has another
one by then, that is learnt and the step is planned anew. Acks are gathered and written together: one transaction for
all ranks that acknowledge at about the same time.
"""

import asyncio
import logging

from dataserver.cursor import Cursor
from dataserver.errors import (
    DataServerError,
    OutdatedPlanError,
    PreconditionError,
    RunNotFoundError,
    StaleAttemptError,
)
from dataserver.ledger.interface import Attempt, Ledger, Run
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.streaming.acks import Acks
from dataserver.streaming.contexts import RunContext, RunContexts
from dataserver.streaming.fetches import Fetches
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.once import Once
from dataserver.streaming.outlook import Outlook
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
        contexts: RunContexts,
        ledger: Ledger,
        threads: Threads,
        metrics: Metrics,
        max_steps_ahead: int,
    ) -> None:
        self.run_name = run.name
        self.run_uid = run.uid
        self.attempt = attempt
        self.pacing = Pacing(acked_steps=run.acked_steps, sealed_step=run.sealed_step, max_steps_ahead=max_steps_ahead)
        self.over: asyncio.Future[DataServerError] = asyncio.get_running_loop().create_future()
        self.local_ranks: dict[int, int] = {}
        self._ledger = ledger
        self._threads = threads
        self._metrics = metrics
        self._contexts = contexts
        self._kept = KEPT_STEPS + max_steps_ahead
        self._outlook = Outlook(context, threads, self._kept)
        self._learning = asyncio.Lock()
        self._seals: Once[int, ReadyStep] = Once(self._kept)
        self._acks = Acks(lambda acks: threads.ledger(ledger.record_acks, run.uid, attempt.key, acks))
        self._wake = asyncio.Event()
        self._attending = asyncio.get_running_loop().create_task(self._attend())

    @property
    def fetches(self) -> Fetches:
        """What encodes the steps' micro-batches."""
        return self._outlook.fetches

    # -- steps --------------------------------------------------------------------------------

    async def plan(self, step: int) -> Plan | EndOfRun:
        """The plan of `step`, made once in this process by the stages that it knows."""
        while True:
            outlook = self._outlook
            try:
                return await self._planned(outlook, step)
            except OutdatedPlanError:
                await self._learn_stages(outlook)

    async def seal(self, step: int) -> ReadyStep:
        """Seal `step`, or read how it was sealed; once in this process. Only for a step that pacing permits."""
        return await self._seals.get(step, lambda: self._make_seal(step))

    def seal_meanwhile(self, step: int) -> None:
        """Begin to seal `step` without waiting for it, if pacing permits it and its plan is there."""
        if isinstance(self._outlook.plans.peek(step), Plan) and self.pacing.permits(step):
            self._seals.start(step, lambda: self._make_seal(step))

    def prefetch(self, after: int) -> None:
        """Start planning the steps after `after`. Seals nothing."""
        outlook = self._outlook
        for step in range(after + 1, after + 1 + max(PLANS_AHEAD, outlook.fetches.plans_ahead)):
            before = outlook.plans.peek(step - 1)
            if isinstance(before, EndOfRun) or (before is not None and before.last):
                return
            outlook.plans.start(step, lambda step=step: self._make_plan(outlook, step))  # type: ignore[misc]

    async def _planned(self, outlook: Outlook, step: int) -> Plan | EndOfRun:
        return await outlook.plans.get(step, lambda: self._make_plan(outlook, step))

    async def _make_plan(self, outlook: Outlook, step: int) -> Plan | EndOfRun:
        begin = await self._begin_of(outlook, step)
        outlook.refuse_unknown_stage(begin)
        planner = outlook.context.planner
        plan = await self._threads.plan(planner.plan, begin, self.attempt.batch, self.attempt.dp_world_size)
        if isinstance(plan, Plan):
            outlook.fetches.start(plan, set(self.local_ranks.values()))
        return plan

    async def _begin_of(self, outlook: Outlook, step: int) -> Cursor:
        if step == self.attempt.base.step + 1:
            return self.attempt.base
        before = outlook.plans.peek(step - 1)
        if before is not None:
            return before.end
        if step - 1 > self.pacing.sealed_step:
            return (await self._planned(outlook, step - 1)).end
        seal = await self._threads.ledger(self._ledger.get_seal, self.run_uid, step - 1)
        if seal is None:
            raise PreconditionError(
                f"run {self.run_name!r}: step {step} was asked for, but step {step - 1} is not sealed"
            )
        return seal.end

    async def _make_seal(self, step: int) -> ReadyStep:
        while True:
            outlook = self._outlook
            try:
                plan = await self._planned(outlook, step)
                await self._threads.plan(outlook.stage_of(plan).check_unchanged)
                proposed = outlook.proposed(step, plan)
                seal = await self._threads.ledger(self._ledger.seal, self.run_uid, self.attempt.key, proposed)
                break
            except OutdatedPlanError:
                await self._learn_stages(outlook)
            except StaleAttemptError as error:
                self.end(error)
                raise
        self.pacing.note_sealed(step)
        self._metrics.count_seal(self.run_name, seal)
        return ReadyStep(plan=plan, sync_weights=seal.sync_weights)

    async def _learn_stages(self, outlook: Outlook) -> None:
        """Plan by the stages that the run has now, unless that was done since `outlook` was current."""
        async with self._learning:
            if self._outlook is not outlook:
                return
            run = await self._threads.ledger(self._ledger.get_run, self.run_name)
            if run.uid != self.run_uid:
                raise RunNotFoundError(f"run {self.run_name!r} was deleted and created again", run=self.run_name)
            self._outlook = Outlook(await self._contexts.of_run(run), self._threads, self._kept)
            outlook.fetches.close()
            log.info("run %s: has %d stages now", self.run_name, len(run.stages))

    # -- acks and progress --------------------------------------------------------------------

    def acknowledge(self, world_rank: int, step: int) -> None:
        """Note that a rank consumed `step` and all before it. The ledger is told soon."""
        if self.pacing.acknowledge(world_rank, step):
            self._acks.add(world_rank, step)
            self._wake.set()

    async def flush_acks(self) -> None:
        """Tell the ledger all acks that it was not told yet."""
        progress = await self._acks.flush()
        if progress is not None:
            self.pacing.update(progress)
            self._metrics.consumed_step.labels(self.run_name).set(self.pacing.consumed_step)

    def end(self, error: DataServerError) -> None:
        """End all streams of this attempt with `error`. The first error stays."""
        if not self.over.done():
            self.over.set_result(error)

    def close(self) -> None:
        """Stop all work for this attempt. Idempotent."""
        self._attending.cancel()
        self._outlook.plans.cancel()
        self.fetches.close()
        self._seals.cancel()

    async def _attend(self) -> None:
        """Write acks and look for progress elsewhere, until the attempt is over."""
        while not self.over.done():
            await self._pause()
            try:
                if self._acks.waiting:
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
