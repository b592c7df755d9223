"""`CursorService`: cursors, commits, and what a step holds."""

import logging

from dataserver.errors import InvalidRequestError
from dataserver.hosting import pages
from dataserver.hosting.call import Call
from dataserver.ledger.interface import Ledger
from dataserver.ledger.steps import AttemptKey
from dataserver.planning.check import MAX_DP_WORLD_SIZE
from dataserver.services import fields
from dataserver.services.describe import Described, StepDescriber
from dataserver.services.run_messages import commit_to_proto, figures_to_proto
from dataserver.streaming.contexts import RunContexts
from dataserver.streaming.opening import check_attempt_id
from dataserver.streaming.registry import Registry
from dataserver.streaming.threads import Threads
from dataserver.v1 import cursor_service_pb2 as pb
from dataserver.v1.cursor_service_pb2_grpc import CursorServiceServicer
from dataserver.wire.messages import cursor_from_proto, cursor_to_proto

log = logging.getLogger(__name__)

# Of one answer: some 25 bytes each, and clients that were told nothing else take 4 MiB.
MOST_SAMPLES = 2**17


class CursorService(CursorServiceServicer):
    """Thin: what is refused stands in the ledger's rules."""

    def __init__(self, *, ledger: Ledger, threads: Threads, contexts: RunContexts, registry: Registry) -> None:
        self._ledger = ledger
        self._threads = threads
        self._registry = registry
        self._describer = StepDescriber(ledger=ledger, threads=threads, contexts=contexts)

    async def GetCursor(self, request: pb.GetCursorRequest, call: Call) -> pb.GetCursorResponse:
        """The cursor of a version, or the committed one."""
        version = fields.within("version", request.version, 0) if request.HasField("version") else None
        cursor, uri = await self._threads.ledger(self._ledger.cursor_at, fields.run_name(request.run), version)
        return pb.GetCursorResponse(cursor=cursor_to_proto(cursor), checkpoint_uri=uri)

    async def ListCursors(self, request: pb.ListCursorsRequest, call: Call) -> pb.ListCursorsResponse:
        """Committed cursors that survive, by step."""
        name = fields.run_name(request.run)
        size = fields.page_size(request.page_size)
        after = pages.page_after_number("cursors", request.page_token, -1)
        commits = await self._threads.ledger(self._ledger.list_commits, name, size + 1, after)
        more = len(commits) > size
        return pb.ListCursorsResponse(
            commits=[commit_to_proto(commit) for commit in commits[:size]],
            next_page_token=pages.page_token("cursors", str(commits[size - 1].cursor.step)) if more else "",
        )

    async def CommitCursor(self, request: pb.CommitCursorRequest, call: Call) -> pb.CommitCursorResponse:
        """Note that a checkpoint is complete."""
        name = fields.run_name(request.run)
        attempt = AttemptKey(
            number=fields.within("attempt", request.attempt, 1),
            attempt_id=check_attempt_id("attempt_id", request.attempt_id),
        )
        if not request.HasField("cursor"):
            raise InvalidRequestError("cursor is missing: give the one inside the checkpoint")
        cursor = cursor_from_proto(request.cursor)
        uri = request.checkpoint_uri
        run = await self._threads.ledger(self._ledger.commit_cursor, name, attempt, cursor, uri)
        log.info("run %s attempt %s: step %d is committed at %s", name, attempt, cursor.step, uri or "no URI")
        return pb.CommitCursorResponse(committed=cursor_to_proto(run.committed))

    async def RewindRun(self, request: pb.RewindRunRequest, call: Call) -> pb.RewindRunResponse:
        """Go back to a version, and end the streams of every attempt so far."""
        name = fields.run_name(request.run)
        version = fields.within("version", request.version, 0)
        run = await self._threads.ledger(self._ledger.rewind_run, name, version)
        self._registry.supersede(run.uid, run.last_attempt + 1, f"the run was rewound to step {version}")
        log.info("run %s: rewound to step %d, attempts up to %d are fenced", name, version, run.last_attempt)
        return pb.RewindRunResponse(committed=cursor_to_proto(run.committed), fenced_attempt=run.last_attempt)

    async def DescribeStep(self, request: pb.DescribeStepRequest, call: Call) -> pb.DescribeStepResponse:
        """Plan a step again, and show who gets what."""
        described = await self._describer.describe(
            fields.run_name(request.run),
            step=fields.within("step", request.step, 1),
            dp_world_size=fields.within("dp_world_size", request.dp_world_size, 0, MAX_DP_WORLD_SIZE),
        )
        only = None
        if request.HasField("dp_rank"):
            only = fields.within("dp_rank", request.dp_rank, 0, described.plan.dp_world_size - 1)
        return await self._threads.inspect(_to_proto, described, only)


def _to_proto(described: Described, only: int | None) -> pb.DescribeStepResponse:
    plan = described.plan
    mine = [indices for ranks in plan.rounds for rank, indices in enumerate(ranks) if only in (None, rank)]
    if (count := sum(map(len, mine))) > MOST_SAMPLES:
        raise InvalidRequestError(
            f"step {plan.step} has {count} samples on {plan.dp_world_size} ranks, and one answer holds {MOST_SAMPLES}: "
            "give a dp_rank"
        )
    stage = described.context.stages[plan.end.stage]
    rows = stage.table.store_rows(plan.samples)
    offsets = stage.table.offsets(plan.samples)
    names = stage.store_names
    micro_batches = [
        pb.MicroBatchPlan(
            round=round_index,
            dp_rank=rank,
            is_image_round=plan.is_image_round(round_index),
            samples=[
                pb.SamplePlan(
                    store=names[int(plan.samples.source[index])],
                    row=int(rows[index]),
                    offset=int(offsets[index]),
                    length=int(plan.lengths[index]),
                )
                for index in indices
            ],
        )
        for round_index, ranks in enumerate(plan.rounds)
        for rank, indices in enumerate(ranks)
        if only is None or rank == only
    ]
    return pb.DescribeStepResponse(
        step=plan.step,
        attempt=described.attempt,
        begin=cursor_to_proto(plan.begin),
        end=cursor_to_proto(plan.end),
        plan_digest=plan.digest,
        sync_weights=described.sync_weights,
        dp_world_size=plan.dp_world_size,
        micro_batches=micro_batches,
        figures=figures_to_proto(plan.figures),
        target_count=plan.target_count,
        token_count=plan.token_count,
        sample_count=len(plan.samples),
        last=plan.last,
    )
