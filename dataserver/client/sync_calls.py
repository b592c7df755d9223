"""What the data server does about syncs of weights: requests, holds, reports, the orchestrator's lease."""

from collections.abc import Iterator

from dataserver.client.calls import Calls
from dataserver.v1 import weight_sync_service_pb2 as pb
from dataserver.weight_sync import Hold, OrchestratorLease, SyncAnswer, SyncState, WeightSync
from dataserver.wire import syncs
from dataserver.wire.build import built
from dataserver.wire.times import to_duration, to_seconds


class SyncCalls:
    """The part of a client that is about syncs. All calls may be repeated, and are where a server goes away."""

    _calls: Calls

    def request_sync(self, run: str, version: int | None, *, at_or_after: bool = False) -> SyncAnswer:
        """Ask for the weights of a version, or of the run's last for None.

        `at_or_after`: where that version is sealed already, ask for the earliest that is still possible. Raises
        `OutOfRangeError` for a version beyond the end, `PreconditionError` where the run offers nothing any more.
        """
        wanted = {"last": True} if version is None else {"version": version}
        request = built(pb.RequestWeightSyncRequest, run=run, at_or_after=at_or_after, **wanted)
        answer = self._calls.unary("WeightSyncService/RequestWeightSync", request, pb.RequestWeightSyncResponse)
        return syncs.answer_from_proto(answer)

    def hold_sync(self, run: str, hold_id: str, ttl_s: float) -> Hold:
        """Take or renew a hold: while it lives, every sealed step asks for a sync."""
        request = built(pb.HoldWeightSyncRequest, run=run, hold_id=hold_id, ttl=to_duration(ttl_s))
        answer = self._calls.unary("WeightSyncService/HoldWeightSync", request, pb.HoldWeightSyncResponse)
        return Hold(hold_id=hold_id, expire_time=to_seconds(answer.expire_time))

    def release_sync(self, run: str, hold_id: str) -> None:
        """End a hold; one that is gone already is no error."""
        request = built(pb.ReleaseWeightSyncRequest, run=run, hold_id=hold_id)
        self._calls.unary("WeightSyncService/ReleaseWeightSync", request, pb.ReleaseWeightSyncResponse)

    def report_sync(self, run: str, sync: WeightSync) -> WeightSync:
        """Say how a sync ended; returns what stands there now: `landed` wins over what else was reported of it.

        Raises `StaleAttemptError` for a version that a rewind dropped.
        """
        request = built(pb.ReportWeightSyncRequest, run=run, sync=syncs.sync_to_proto(sync))
        answer = self._calls.unary("WeightSyncService/ReportWeightSync", request, pb.ReportWeightSyncResponse)
        return syncs.sync_from_proto(answer.sync)

    def sync_state(self, run: str) -> SyncState:
        """All about the run's syncs."""
        request = built(pb.GetWeightSyncStateRequest, run=run)
        answer = self._calls.unary("WeightSyncService/GetWeightSyncState", request, pb.GetWeightSyncStateResponse)
        return syncs.state_from_proto(answer.state)

    def watch_sync_state(self, run: str) -> Iterator[SyncState]:
        """The same, now and after each change, for ever; close the generator to end it. Renewals are no change."""
        request = built(pb.WatchWeightSyncStateRequest, run=run)
        rpc = "WeightSyncService/WatchWeightSyncState"
        for answer in self._calls.watch(rpc, request, pb.WatchWeightSyncStateResponse):
            yield syncs.state_from_proto(answer.state)

    def lease_orchestrator(self, run: str, holder: str, address: str, ttl_s: float) -> OrchestratorLease:
        """Be the run's orchestrator, reached at `address` (`HOST:PORT`), or stay it.

        `holder`: a name that no other process shares. Raises `OrchestratorAliveError` while another one's lease lives.
        """
        request = built(pb.LeaseOrchestratorRequest, run=run, holder=holder, address=address, ttl=to_duration(ttl_s))
        answer = self._calls.unary("WeightSyncService/LeaseOrchestrator", request, pb.LeaseOrchestratorResponse)
        return syncs.lease_from_proto(answer.lease)

    def release_orchestrator(self, run: str, holder: str) -> None:
        """Give the lease back; one that is gone already is no error."""
        request = built(pb.ReleaseOrchestratorRequest, run=run, holder=holder)
        self._calls.unary("WeightSyncService/ReleaseOrchestrator", request, pb.ReleaseOrchestratorResponse)
