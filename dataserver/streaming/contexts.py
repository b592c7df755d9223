"""The stages of a run and this server's stores: the planner and the sample tables of a run.

Building one reads the stores' indexes and so takes a while for large stores; it happens once per stage, off the event
loop, and runs that begin alike share what they have in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from dataserver.cursor import Cursor
from dataserver.errors import ForeignCursorError
from dataserver.ledger.interface import Run
from dataserver.planning.fingerprint import differing_fields
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.planning.planner import Planner
from dataserver.planning.stages import Stage
from dataserver.run_spec import BatchSpec, OrderSpec
from dataserver.streaming.catalog import StoreCatalog
from dataserver.streaming.once import Once
from dataserver.streaming.stage_context import StageContext, build_stage
from dataserver.streaming.threads import Threads

# Stages whose tables are kept: those of several runs. A table holds a few bytes per row at most.
KEPT_STAGES = 256

# Stages from the first on, each as its first step and its order in JSON, and how many samples of each source.
StagesKey = tuple[tuple[tuple[int, str], ...], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What serving a run needs besides the ledger."""

    stages: tuple[StageContext, ...]
    planner: Planner

    @property
    def order_fingerprint(self) -> str:
        """Of the first stage: what names the run's order."""
        return self.stages[0].fingerprint

    @property
    def known_stages(self) -> str:
        """The last stage's fingerprint, which covers all of them: by which stages this plans."""
        return self.stages[-1].fingerprint

    def plan(
        self, begin: Cursor, batch: BatchSpec, dp_world_size: int, *, vocab_size: int | None = None
    ) -> Plan | EndOfRun:
        """`Planner.plan`, and the check of vocabulary that lazily admitted stores put off.

        Raises `UnknownBlocksError` for rows of theirs that nobody has looked at: see `known_rows`.
        """
        plan = self.planner.plan(begin, batch, dp_world_size)
        if isinstance(plan, Plan):
            self.stages[plan.end.stage].check_planned_vocabulary(plan, vocab_size)
        return plan

    def check_vocabulary(self, vocab_size: int | None) -> None:
        """Raise `InvalidSpecError` for a store with a token that the model does not know."""
        for stage in self.stages:
            stage.check_vocabulary(vocab_size)

    def check_images(self, *, allowed: bool) -> None:
        """Raise `InvalidSpecError` for a store with images, unless the model takes them."""
        for stage in self.stages:
            stage.check_images(allowed=allowed)

    def check_batch(self, batch: BatchSpec, max_message_bytes: int, *, short_steps: bool = False) -> None:
        """Raise `InvalidSpecError` when a longest sample or a largest micro-batch would not fit; see `StageContext`."""
        for stage in self.stages:
            stage.check_batch(batch, max_message_bytes, short_steps=short_steps)

    def check_same_stages(self, run: Run) -> None:
        """Raise `ForeignCursorError` when the run was made over other stores or by other ordering code."""
        for number, (theirs, ours) in enumerate(zip(run.stages, self.stages, strict=True)):
            if theirs.order_fingerprint != ours.fingerprint:
                fields = ", ".join(differing_fields(theirs.order_fingerprint, ours.fingerprint))
                which = f" in stage {number}" if number else ""
                raise ForeignCursorError(
                    f"run {run.name!r} was created with another order than this server makes of its spec now{which}; "
                    f"what differs: {fields}. Serve the stores as they were, or create another run",
                    fields=fields,
                )

    def check_cursor(self, cursor: Cursor) -> None:
        """Raise `ForeignCursorError` or `InvalidRequestError` for a cursor that no step of this order ends at."""
        self.planner.check(cursor)


class RunContexts:
    """Contexts by their stages."""

    def __init__(self, catalog: StoreCatalog, threads: Threads) -> None:
        self._catalog = catalog
        self._threads = threads
        self._built: Once[StagesKey, StageContext] = Once(KEPT_STAGES)

    async def of_order(self, order: OrderSpec, *, most_samples: int | None = None) -> RunContext:
        """The context of a run of one stage, or of the first `most_samples` of each of its sources.

        Raises `StoreNotFoundError`, `StoreRefusedError`, `InvalidSpecError`.
        """
        return await self.of_stages([Stage(first_step=1, order=order)], most_samples=most_samples)

    async def of_run(self, run: Run) -> RunContext:
        """The context of a run; raises `ForeignCursorError` too, when the stores are not what they were."""
        context = await self.of_stages([stage.stage for stage in run.stages])
        context.check_same_stages(run)
        return context

    async def of_stages(self, stages: Sequence[Stage], *, most_samples: int | None = None) -> RunContext:
        """The context of a run of these stages; raises as `of_order` does."""
        keys = tuple((stage.first_step, stage.order.model_dump_json()) for stage in stages)
        built: list[StageContext] = []
        for number, stage in enumerate(stages):
            key = (keys[: number + 1], most_samples)
            build = partial(
                self._threads.store,
                build_stage,
                stage,
                self._catalog,
                number=number,
                before=built[-1].fingerprint if built else "",
                most_samples=most_samples,
            )
            built.append(await self._built.get(key, build))
        return composed(built)


def build_context(order: OrderSpec, catalog: StoreCatalog) -> RunContext:
    """The context of a run of one stage. Blocks while the stores' indexes are read."""
    return composed([build_stage(Stage(first_step=1, order=order), catalog)])


def composed(stages: Sequence[StageContext]) -> RunContext:
    """Stages that follow each other as a run."""
    return RunContext(stages=tuple(stages), planner=Planner([stage.planned for stage in stages]))
