"""`WeightSyncService`: who wants which weights, and what became of them."""

import asyncio
import logging

from dataserver.errors import InvalidRequestError
from dataserver.hosting.call import Call
from dataserver.ledger.interface import Ledger
from dataserver.services import fields
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.registry import Registry
from dataserver.streaming.threads import Threads
from dataserver.v1 import weight_sync_pb2
from dataserver.v1 import weight_sync_service_pb2 as pb
from dataserver.v1.weight_sync_service_pb2_grpc import WeightSyncServiceServicer
from dataserver.wire.syncs import answer_to_proto, lease_to_proto, state_to_proto, sync_from_proto, sync_to_proto
from dataserver.wire.times import to_seconds, to_timestamp

log = logging.getLogger(__name__)

# How often a watched state is read.
WATCH_POLL_S = 0.1


class WeightSyncService(WeightSyncServiceServicer):
    """Thin: what is refused stands in the ledger's rules."""

    def __init__(self, *, ledger: Ledger, threads: Threads, registry: Registry, metrics: Metrics) -> None:
        self._ledger = ledger
        self._threads = threads
        self._registry = registry
        self._metrics = metrics

    async def RequestWeightSync(self, request: pb.RequestWeightSyncRequest, call: Call) -> pb.RequestWeightSyncResponse:
        """Ask for a version's weights."""
        name = fields.run_name(request.run)
        wanted = request.WhichOneof("wanted")
        if wanted is None or (wanted == "last" and not request.last):
            raise InvalidRequestError("wanted is missing: give a version, or last = true")
        if wanted == "last" and request.at_or_after:
            raise InvalidRequestError("at_or_after does not go with last, which is the version that the run ends with")
        version = fields.within("version", request.version, 0) if wanted == "version" else None
        answer = await self._threads.ledger(self._ledger.request_sync, name, version, at_or_after=request.at_or_after)
        self._metrics.sync_requests.labels(name, answer.outcome).inc()
        log.info(
            "run %s: a sync of version %s is requested: %s%s", name, "last" if version is None else version,
            answer.outcome, "" if answer.version is None else f" ({answer.version})",
        )  # fmt: skip
        return answer_to_proto(answer)

    async def HoldWeightSync(self, request: pb.HoldWeightSyncRequest, call: Call) -> pb.HoldWeightSyncResponse:
        """Take or renew a hold."""
        name, ttl_s = fields.run_name(request.run), to_seconds(request.ttl)
        hold = await self._threads.ledger(self._ledger.hold_sync, name, request.hold_id, ttl_s)
        return pb.HoldWeightSyncResponse(expire_time=to_timestamp(hold.expire_time))

    async def ReleaseWeightSync(self, request: pb.ReleaseWeightSyncRequest, call: Call) -> pb.ReleaseWeightSyncResponse:
        """End a hold."""
        await self._threads.ledger(self._ledger.release_sync, fields.run_name(request.run), request.hold_id)
        return pb.ReleaseWeightSyncResponse()

    async def ReportWeightSync(self, request: pb.ReportWeightSyncRequest, call: Call) -> pb.ReportWeightSyncResponse:
        """Note how a sync ended."""
        name = fields.run_name(request.run)
        if not request.HasField("sync"):
            raise InvalidRequestError("sync is missing: say which sync ended, and how")
        reported = sync_from_proto(request.sync)
        sync = await self._threads.ledger(self._ledger.report_sync, name, reported)
        self._metrics.sync_reports.labels(name, reported.outcome).inc()
        log.info(
            "run %s: sync %s of version %s %s after %.2f s%s", name, sync.sync_id, sync.version, sync.outcome,
            sync.seconds, f": {sync.detail}" if sync.detail else "",
        )  # fmt: skip
        return pb.ReportWeightSyncResponse(sync=sync_to_proto(sync))

    async def GetWeightSyncState(
        self, request: pb.GetWeightSyncStateRequest, call: Call
    ) -> pb.GetWeightSyncStateResponse:
        """Show the state."""
        return pb.GetWeightSyncStateResponse(state=await self._state(fields.run_name(request.run)))

    async def WatchWeightSyncState(self, request: pb.WatchWeightSyncStateRequest, call: Call) -> None:
        """Send the state whenever it changes, leases that are renewed aside."""
        name = fields.run_name(request.run)
        sent: weight_sync_pb2.WeightSyncState | None = None
        while True:
            self._registry.refuse_while_draining()
            state = await self._state(name)
            if sent is None or _without_times(state) != _without_times(sent):
                await call.write(pb.WatchWeightSyncStateResponse(state=state))
                sent = state
            await asyncio.sleep(WATCH_POLL_S)

    async def LeaseOrchestrator(self, request: pb.LeaseOrchestratorRequest, call: Call) -> pb.LeaseOrchestratorResponse:
        """Make the caller the run's orchestrator, or renew its lease."""
        name, ttl_s = fields.run_name(request.run), to_seconds(request.ttl)
        lease = await self._threads.ledger(
            self._ledger.lease_orchestrator, name, request.holder, request.address, ttl_s
        )
        return pb.LeaseOrchestratorResponse(lease=lease_to_proto(lease))

    async def ReleaseOrchestrator(
        self, request: pb.ReleaseOrchestratorRequest, call: Call
    ) -> pb.ReleaseOrchestratorResponse:
        """Give the lease back."""
        await self._threads.ledger(self._ledger.release_orchestrator, fields.run_name(request.run), request.holder)
        return pb.ReleaseOrchestratorResponse()

    async def _state(self, name: str) -> weight_sync_pb2.WeightSyncState:
        return state_to_proto(await self._threads.ledger(self._ledger.sync_state, name))


def _without_times(state: weight_sync_pb2.WeightSyncState) -> weight_sync_pb2.WeightSyncState:
    """The state without what a renewal changes."""
    kept = weight_sync_pb2.WeightSyncState()
    kept.CopyFrom(state)
    kept.lease.ClearField("expire_time")
    if not state.HasField("lease"):
        kept.ClearField("lease")
    for hold in kept.holds:
        hold.ClearField("expire_time")
    return kept
