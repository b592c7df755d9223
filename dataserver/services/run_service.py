"""`RunService`: runs and their attempts."""

import asyncio
import logging

from dataserver.config import ServerConfig
from dataserver.errors import DataServerError, InvalidRequestError
from dataserver.hosting import pages
from dataserver.hosting.call import Call
from dataserver.ledger.interface import Ledger, Run, RunStage
from dataserver.planning.stages import Stage
from dataserver.run_spec import MAX_COUNT
from dataserver.services import fields
from dataserver.services.mixture import mixture
from dataserver.services.run_messages import attempt_to_proto, event_to_proto, run_to_proto
from dataserver.streaming.contexts import RunContexts
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.registry import Registry
from dataserver.streaming.threads import Threads
from dataserver.v1 import run_pb2
from dataserver.v1 import run_service_pb2 as pb
from dataserver.v1.run_service_pb2_grpc import RunServiceServicer
from dataserver.wire.messages import (
    batch_spec_from_proto,
    cursor_from_proto,
    order_spec_from_proto,
    run_spec_from_proto,
)

log = logging.getLogger(__name__)

# How often a watched run is read.
WATCH_POLL_S = 0.25


class RunService(RunServiceServicer):
    """Thin: checks what needs the stores, and leaves the rest to the ledger."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        ledger: Ledger,
        threads: Threads,
        contexts: RunContexts,
        registry: Registry,
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._threads = threads
        self._contexts = contexts
        self._registry = registry
        self._metrics = metrics

    async def CreateRun(self, request: pb.CreateRunRequest, call: Call) -> pb.CreateRunResponse:
        """Create a run whose stores are here and suit its spec."""
        name = fields.run_name(request.name)
        spec = run_spec_from_proto(request.spec)
        context = await self._contexts.of_order(spec.order)
        context.check_vocabulary(spec.vocab_size)
        context.check_images(allowed=spec.images)
        context.check_batch(spec.batch, self._config.max_message_bytes)
        epoch_samples = context.stages[0].epoch_samples
        run, created = await self._threads.ledger(
            self._ledger.create_run, name, spec, context.order_fingerprint, epoch_samples=epoch_samples
        )
        if created:
            log.info("run %s: created, %d samples an epoch", name, epoch_samples)
            if not spec.batch.cost_quadratic:
                log.info(
                    "run %s: packed as if every token cost the same, because cost_quadratic is 0; "
                    "`dataserver plan cost --model` prints the two coefficients of a model",
                    name,
                )
        return pb.CreateRunResponse(run=await self._shown(run), created=created)

    async def AmendRun(self, request: pb.AmendRunRequest, call: Call) -> pb.AmendRunResponse:
        """Append a stage whose stores are here and suit the run."""
        name = fields.run_name(request.run)
        first_step = fields.within("first_step", request.first_step, 2, MAX_COUNT)
        if not request.HasField("order"):
            raise InvalidRequestError("order is missing: give the order of the new stage")
        stage = Stage(first_step=first_step, order=order_spec_from_proto(request.order))
        run = await self._threads.ledger(self._ledger.get_run, name)
        earlier = [there.stage for there in run.stages if there.stage.first_step < first_step]
        context = await self._contexts.of_stages([*earlier, stage])
        context.check_vocabulary(run.spec.vocab_size)
        context.check_images(allowed=run.spec.images)
        for batch in {run.spec.batch, run.spec.batch if run.attempt is None else run.attempt.batch}:
            context.check_batch(batch, self._config.max_message_bytes)
        before, new = context.stages[-2:]
        added = RunStage(stage=stage, order_fingerprint=new.fingerprint, epoch_samples=new.epoch_samples)
        run, amended = await self._threads.ledger(self._ledger.amend_run, name, added, before.fingerprint)
        if amended:
            log.info("run %s: stage %d begins with step %d", name, len(run.stages) - 1, first_step)
        return pb.AmendRunResponse(run=await self._shown(run), amended=amended)

    async def BeginAttempt(self, request: pb.BeginAttemptRequest, call: Call) -> pb.BeginAttemptResponse:
        """Fix an attempt, and end the streams of the ones before."""
        name = fields.run_name(request.run)
        if request.mode not in (pb.BEGIN_MODE_START, pb.BEGIN_MODE_RESUME):
            raise InvalidRequestError(f"mode = {request.mode}: give BEGIN_MODE_START or BEGIN_MODE_RESUME")
        resume = request.mode == pb.BEGIN_MODE_RESUME
        run = await self._threads.ledger(self._ledger.get_run, name)
        context = await self._contexts.of_run(run)
        cursor = cursor_from_proto(request.cursor) if request.HasField("cursor") else None
        if cursor is not None:
            context.check_cursor(cursor)
        batch = batch_spec_from_proto(request.batch) if request.HasField("batch") else None
        context.check_batch(batch or run.spec.batch, self._config.max_message_bytes)
        attempt = await self._threads.ledger(
            self._ledger.begin_attempt,
            name,
            resume=resume,
            cursor=cursor,
            version=_version(request, resume=resume),
            world_size=request.world_size,
            dp_world_size=request.dp_world_size,
            batch=batch,
            holder=request.holder,
            take_over=request.take_over,
        )
        self._registry.supersede(run.uid, attempt.number, f"attempt {attempt.number} has begun")
        log.info(
            "run %s: attempt %d begins after step %d on %d ranks (%d data-parallel), held by %s",
            name, attempt.number, attempt.base.step, attempt.world_size, attempt.dp_world_size, attempt.holder,
        )  # fmt: skip
        return pb.BeginAttemptResponse(attempt=attempt_to_proto(attempt))

    async def GetRun(self, request: pb.GetRunRequest, call: Call) -> pb.GetRunResponse:
        """Show one run."""
        run = await self._threads.ledger(self._ledger.get_run, fields.run_name(request.run))
        return pb.GetRunResponse(run=await self._shown(run))

    async def ListRuns(self, request: pb.ListRunsRequest, call: Call) -> pb.ListRunsResponse:
        """List runs by name. Reads no store: there may be many, of stores that are not here."""
        size = fields.page_size(request.page_size)
        after = pages.page_after("runs", request.page_token, "")
        runs = await self._threads.ledger(self._ledger.list_runs, size + 1, after)
        more = len(runs) > size
        return pb.ListRunsResponse(
            runs=[run_to_proto(run, mixture=None) for run in runs[:size]],
            next_page_token=pages.page_token("runs", runs[size - 1].name) if more else "",
        )

    async def WatchRun(self, request: pb.WatchRunRequest, call: Call) -> None:
        """Send the run whenever it changes, the time aside."""
        name = fields.run_name(request.run)
        sent: bytes | None = None
        while True:
            self._registry.refuse_while_draining()
            run = await self._threads.ledger(self._ledger.get_run, name)
            shown = await self._shown(run)
            time_aside = run_pb2.Run.FromString(shown.SerializeToString())
            time_aside.ClearField("read_time")
            time_aside.attempt.ClearField("lease_expire_time")
            state = time_aside.SerializeToString(deterministic=True)
            if state != sent:
                await call.write(pb.WatchRunResponse(run=shown))
                sent = state
            await asyncio.sleep(WATCH_POLL_S)

    async def DeleteRun(self, request: pb.DeleteRunRequest, call: Call) -> pb.DeleteRunResponse:
        """Delete a run that nobody trains on."""
        name = fields.run_name(request.run)
        await self._threads.ledger(self._ledger.delete_run, name)
        self._metrics.forget_run(name)
        log.info("run %s: deleted", name)
        return pb.DeleteRunResponse()

    async def ListRunEvents(self, request: pb.ListRunEventsRequest, call: Call) -> pb.ListRunEventsResponse:
        """List what happened to a run."""
        name = fields.run_name(request.run)
        size = fields.page_size(request.page_size)
        after = pages.page_after_number("events", request.page_token, 0)
        events = await self._threads.ledger(self._ledger.list_events, name, size + 1, after)
        more = len(events) > size
        return pb.ListRunEventsResponse(
            events=[event_to_proto(event) for event in events[:size]],
            next_page_token=pages.page_token("events", str(events[size - 1].number)) if more else "",
        )

    async def _shown(self, run: Run) -> run_pb2.Run:
        try:
            drawn = await mixture(run, contexts=self._contexts, ledger=self._ledger, threads=self._threads)
        except DataServerError:
            # The run is not for this server's stores, or began in another ledger; it is shown all the same.
            drawn = None
        return run_to_proto(run, mixture=drawn)


def _version(request: pb.BeginAttemptRequest, *, resume: bool) -> int | None:
    """The version to resume from. With a cursor, 0 stands for "as the cursor says"."""
    if not resume or (request.HasField("cursor") and request.version == 0):
        return None
    return request.version
