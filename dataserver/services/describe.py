"""What a step holds: planned again from the cursor at which it begins.

A sealed step begins at the surviving cursor of the version before. A step ahead of the seals is reached by planning
forward from the last sealed one, for at most `FARTHEST_AHEAD` steps.
"""

import asyncio
import threading
from dataclasses import dataclass
from functools import partial

from dataserver.cursor import Cursor
from dataserver.errors import OutOfRangeError, PlanMismatchError, WaitExpiredError
from dataserver.ledger.interface import Ledger, Run
from dataserver.ledger.steps import Seal
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.run_spec import BatchSpec
from dataserver.stores.unknown_blocks import when_known
from dataserver.streaming.contexts import RunContext, RunContexts
from dataserver.streaming.threads import Threads

FARTHEST_AHEAD = 10_000

# A person waits no longer. Two steps are described at once, so that more cannot pile up behind a slow one.
LONGEST_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A step's plan, and how it was sealed; `attempt` is 0 for one that is not sealed, or not for so many ranks."""

    plan: Plan
    attempt: int
    sync_weights: bool
    context: RunContext


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """How steps are cut and packed for whom."""

    batch: BatchSpec
    dp_world_size: int


class StepDescriber:
    """Describes steps off the event loop, on threads that no stream waits for."""

    def __init__(self, *, ledger: Ledger, threads: Threads, contexts: RunContexts) -> None:
        self._ledger = ledger
        self._threads = threads
        self._contexts = contexts

    async def describe(self, name: str, *, step: int, dp_world_size: int) -> Described:
        """`dp_world_size` 0 stands for the size that the step was sealed for, or else that of the current attempt.

        Raises `OutOfRangeError` for a step too far ahead or beyond the end of the run, `VersionNotFoundError` where
        the ledger does not know where the step begins, `PlanMismatchError` when it was sealed otherwise, and
        `WaitExpiredError` for a plan that takes too long.
        """
        try:
            async with asyncio.timeout(LONGEST_S):
                return await self._describe(name, step=step, dp_world_size=dp_world_size)
        except TimeoutError:
            raise WaitExpiredError(
                f"run {name!r}: step {step} was not planned within {LONGEST_S:g} s, the longest that a step is "
                "looked for: it may be far ahead, very large, or behind others that are looked for. Ask for one "
                "nearer to the last sealed step, or again later"
            ) from None

    async def _describe(self, name: str, *, step: int, dp_world_size: int) -> Described:
        run = await self._threads.ledger(self._ledger.get_run, name)
        context = await self._contexts.of_run(run)
        if step > run.sealed_step + FARTHEST_AHEAD:
            raise OutOfRangeError(
                f"run {name!r}: step {step} is more than {FARTHEST_AHEAD} steps ahead of step {run.sealed_step}, "
                "the last that is sealed"
            )
        seal = await self._threads.ledger(self._ledger.get_seal, run.uid, step)
        if seal is not None and seal.end_of_run:
            raise OutOfRangeError(f"run {name!r} ended after step {step - 1}: there is no step {step}")
        cut = await self._cut(run, seal)
        sealed_for = cut.dp_world_size
        cut = _Cut(batch=cut.batch, dp_world_size=dp_world_size or sealed_for)
        begins_after = min(step - 1, run.sealed_step)
        begin, _ = await self._threads.ledger(self._ledger.cursor_at, name, begins_after)
        plan = await self._plan_ahead(context, begin, cut, step)
        if cut.dp_world_size != sealed_for:
            seal = None
        if seal is not None and seal.plan_digest != plan.digest:
            raise PlanMismatchError(
                f"run {name!r}: step {step} was sealed with plan {seal.plan_digest}, this server computes {plan.digest}"
            )
        return Described(
            plan=plan,
            attempt=0 if seal is None else seal.attempt,
            sync_weights=seal is not None and seal.sync_weights,
            context=context,
        )

    async def _cut(self, run: Run, seal: Seal | None) -> _Cut:
        """As the step was sealed; as the current attempt would; as the run was created, for one rank."""
        attempt = run.attempt
        if seal is not None and (attempt is None or attempt.number != seal.attempt):
            attempt = await self._threads.ledger(self._ledger.get_attempt, run.name, seal.attempt)
        if attempt is None:
            return _Cut(batch=run.spec.batch, dp_world_size=1)
        return _Cut(batch=attempt.batch, dp_world_size=attempt.dp_world_size)

    async def _plan_ahead(self, context: RunContext, begin: Cursor, cut: _Cut, step: int) -> Plan:
        """Stops soon after nobody waits for it any more."""
        abandoned = threading.Event()
        try:
            return await self._threads.inspect(_plan_ahead, context, begin, cut, step, abandoned)
        finally:
            abandoned.set()


def _plan_ahead(context: RunContext, cursor: Cursor, cut: _Cut, step: int, abandoned: threading.Event) -> Plan:
    while not abandoned.is_set():
        plan = when_known(partial(context.plan, cursor, cut.batch, cut.dp_world_size))
        if isinstance(plan, EndOfRun):
            raise OutOfRangeError(f"the run ends after step {cursor.step} ({plan.reason}): there is no step {step}")
        if plan.step == step:
            return plan
        cursor = plan.end
    raise OutOfRangeError(f"nobody waits for step {step} any more")
