"""The steps of an attempt as they are planned by the stages known so far."""

from dataserver.cursor import Cursor
from dataserver.errors import OutdatedPlanError
from dataserver.ledger.steps import ProposedSeal
from dataserver.ledger.totals import StepServed
from dataserver.planning.fingerprint import PLANNER_VERSION
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.streaming.contexts import RunContext
from dataserver.streaming.fetches import Fetches
from dataserver.streaming.once import Once
from dataserver.streaming.stage_context import StageContext
from dataserver.streaming.threads import Threads


class Outlook:
    """The plans of an attempt, each made once. Replaced as a whole when the run gets another stage."""

    def __init__(self, context: RunContext, threads: Threads, kept_plans: int) -> None:
        self.context = context
        self.fetches = Fetches([stage.table for stage in context.stages], threads)
        self.plans: Once[int, Plan | EndOfRun] = Once(kept_plans)

    def refuse_unknown_stage(self, begin: Cursor) -> None:
        """Raise `OutdatedPlanError` for a cursor in a stage that was appended since."""
        if begin.stage >= len(self.context.stages):
            raise OutdatedPlanError(
                f"step {begin.step} lies in stage {begin.stage}, and {len(self.context.stages)} stages are known here"
            )

    def stage_of(self, plan: Plan | EndOfRun) -> StageContext:
        """The stage that a step belongs to."""
        return self.context.stages[plan.end.stage]

    def proposed(self, step: int, plan: Plan | EndOfRun) -> ProposedSeal:
        """What the ledger is asked to seal."""
        ends = isinstance(plan, EndOfRun)
        return ProposedSeal(
            step=step,
            end=plan.end,
            plan_digest="" if isinstance(plan, EndOfRun) else plan.digest,
            planner_version=PLANNER_VERSION,
            last=ends or (isinstance(plan, Plan) and plan.last),
            end_of_run=ends,
            stages=self.context.known_stages,
            served=None if isinstance(plan, EndOfRun) else self._served(plan),
        )

    def _served(self, plan: Plan) -> StepServed:
        names = self.stage_of(plan).store_names
        return StepServed(figures=plan.figures, store_tokens=dict(zip(names, plan.source_tokens(), strict=False)))
