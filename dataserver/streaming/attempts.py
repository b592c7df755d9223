"""One attempt as this process serves it: what all its streams here share.

    plan N ──> pacing lets N go ──> seal N (ledger) ──> its micro-batches

Plans are made ahead and never seal anything. A seal says by which stages it was planned; where the ledger has another
one by then, that is learnt and the step is planned anew.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from dataserver.config import ServerConfig
from dataserver.cursor import Cursor
from dataserver.errors import (
    DataServerError,
    OutdatedPlanError,
    PreconditionError,
    RunNotFoundError,
    StaleAttemptError,
)
from dataserver.ledger.interface import Attempt, Ledger, Run
from dataserver.ledger.steps import ProposedSeal, Seal
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.stores.ahead import BlockRef
from dataserver.streaming.attendant import Attendant
from dataserver.streaming.closing import Closing
from dataserver.streaming.contexts import RunContext, RunContexts
from dataserver.streaming.fetches import Fetches
from dataserver.streaming.known_rows import planned
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.once import Once
from dataserver.streaming.outlook import Outlook
from dataserver.streaming.pacing import Pacing
from dataserver.streaming.supply import ReadyStep, Stamp
from dataserver.streaming.threads import Threads
from dataserver.streaming.waits import Waits
from dataserver.weight_sync import Offer, ShutdownHold

log = logging.getLogger(__name__)

# Plans and seals that are kept. Ranks are at most a few steps apart; one that reconnects may be further behind.
KEPT_STEPS = 64

# Plans that are made ahead of the step that is being sent.
PLANS_AHEAD = 2

T = TypeVar("T")


class LiveAttempt:
    """Plans, seals, pacing and acks of one attempt.

    `closing`: what follows the last step. `over` carries the error that ends all its streams. `local_ranks`:
    data-parallel rank of each world rank that streams from here.
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
        config: ServerConfig,
        waits: Waits,
    ) -> None:
        self.run_name = run.name
        self.run_uid = run.uid
        self.attempt = attempt
        self.pacing = Pacing(
            acked_steps=run.acked_steps, sealed_step=run.sealed_step, max_steps_ahead=config.max_steps_ahead
        )
        self.over: asyncio.Future[DataServerError] = asyncio.get_running_loop().create_future()
        self.local_ranks: dict[int, int] = {}
        self._vocab_size = run.spec.vocab_size
        self._ledger = ledger
        self._threads = threads
        self._metrics = metrics
        self._contexts = contexts
        self._kept = KEPT_STEPS + config.max_steps_ahead
        self._outlook = Outlook(context, threads, self._kept)
        self._learning = asyncio.Lock()
        self._seals: Once[int, ReadyStep] = Once(self._kept)
        self._config = config
        self._attendant = Attendant(
            run,
            attempt,
            self.pacing,
            self.local_ranks.keys(),
            end=self.end,
            ledger=ledger,
            threads=threads,
            metrics=metrics,
        )
        self.closing = Closing(f"run {run.name!r} attempt {attempt.number}", self._conclude, waits)

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

    def sealed(self, step: int) -> ReadyStep | None:
        """`step`, if it was sealed in this process."""
        return self._seals.peek(step)

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
        if outlook is not self._outlook:
            raise OutdatedPlanError(f"step {step} would be planned by stages that are no longer all")
        plan, needed = await planned(self._threads, partial(self._plan, outlook, begin))
        if isinstance(plan, Plan):
            outlook.fetches.start(plan, needed)
        return plan

    def _plan(self, outlook: Outlook, begin: Cursor) -> tuple[Plan | EndOfRun, list[BlockRef]]:
        """The step, and the blocks of it that the ranks here read by then. Computes; for a thread."""
        attempt = self.attempt
        plan = outlook.context.plan(begin, attempt.batch, attempt.dp_world_size, vocab_size=self._vocab_size)
        return plan, outlook.fetches.needed(plan, set(self.local_ranks.values()))

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
        plan, seal = await self._with_plan(
            step,
            lambda proposed: self._threads.ledger(self._ledger.seal, self.run_uid, self.attempt.key, proposed),
        )
        self.pacing.note_sealed(step)
        self._metrics.count_seal(self.run_name, seal, self._outlook.stage_of(plan).token_shares)
        return ReadyStep(plan=plan, stamp=Stamp(sync_weights=seal.sync_weights, orchestrator=seal.orchestrator))

    async def _with_plan(self, step: int, ask: Callable[[ProposedSeal], Awaitable[T]]) -> tuple[Plan | EndOfRun, T]:
        """The plan of `step`, and what the ledger says to it; planned anew as often as the run turns out amended."""
        while True:
            outlook = self._outlook
            try:
                plan = await self._planned(outlook, step)
                await self._threads.plan(outlook.stage_of(plan).check_unchanged)
                return plan, await ask(outlook.proposed(step, plan))
            except OutdatedPlanError:
                await self._learn_stages(outlook)
            except StaleAttemptError as error:
                self.end(error)
                raise

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

    # -- acks, offers, end --------------------------------------------------------------------

    def acknowledge(self, world_rank: int, step: int, offer: int) -> None:
        """Note that a rank consumed `step`, and is done with `offer`, and with all before. The ledger is told soon."""
        self._attendant.acknowledge(world_rank, step, offer)

    async def flush_acks(self) -> None:
        """Tell the ledger all acks that it was not told yet."""
        await self._attendant.flush()

    async def opening_offer(self) -> Offer | None:
        """The base's weights, as they are offered to every rank that takes offers."""
        return await self._threads.ledger(self._ledger.get_offer, self.run_uid, self.attempt.key, 0)

    def end(self, error: DataServerError) -> None:
        """End all streams of this attempt with `error`. The first error stays."""
        if not self.over.done():
            self.over.set_result(error)

    def close(self) -> None:
        """Stop all work for this attempt. Idempotent."""
        self._attendant.close()
        self.closing.close()
        self._outlook.plans.cancel()
        self.fetches.close()
        self._seals.cancel()

    async def _conclude(self, step: int, after: int) -> Offer | Seal | ShutdownHold:
        """Ask the ledger what follows the last step, which `step` would follow."""
        hold_s = self._config.shutdown_hold_s
        _, answer = await self._with_plan(
            step,
            lambda proposed: self._threads.ledger(
                self._ledger.conclude, self.run_uid, self.attempt.key, proposed, after=after, hold_s=hold_s
            ),
        )
        if isinstance(answer, Offer):
            self._metrics.sync_stamps.labels(self.run_name).inc()
        return answer
