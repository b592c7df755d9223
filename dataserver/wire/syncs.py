"""What `WeightSyncService` tells, between values and messages."""

from dataserver.errors import InvalidRequestError
from dataserver.v1 import weight_sync_pb2 as pb
from dataserver.v1 import weight_sync_service_pb2 as service_pb
from dataserver.weight_sync import (
    MAX_DETAIL_LENGTH,
    Hold,
    OrchestratorLease,
    RequestOutcome,
    SyncAnswer,
    SyncOutcome,
    SyncState,
    WeightSync,
)
from dataserver.wire.build import built
from dataserver.wire.offers import orchestrator_from_proto, orchestrator_to_proto, version_from_proto, version_to_proto
from dataserver.wire.texts import shortened
from dataserver.wire.times import to_seconds, to_timestamp

_OUTCOMES = {
    SyncOutcome.LANDED: pb.SYNC_OUTCOME_LANDED,
    SyncOutcome.FAILED: pb.SYNC_OUTCOME_FAILED,
    SyncOutcome.SKIPPED: pb.SYNC_OUTCOME_SKIPPED,
}
_ANSWERS = {
    RequestOutcome.ACCEPTED: service_pb.REQUEST_OUTCOME_ACCEPTED,
    RequestOutcome.LANDED: service_pb.REQUEST_OUTCOME_LANDED,
    RequestOutcome.ALREADY_SEALED: service_pb.REQUEST_OUTCOME_ALREADY_SEALED,
}


def sync_to_proto(sync: WeightSync) -> pb.WeightSync:
    """Write a sync that ended; without a time where none was set.

    `detail` is made to fit: it is joined from what others said, and no text may void a report that a sync landed.
    """
    message = built(
        pb.WeightSync,
        sync_id=sync.sync_id,
        outcome=_OUTCOMES[sync.outcome],
        seconds=sync.seconds,
        stall_seconds=sync.stall_seconds,
        engines=sync.engines,
        detail=shortened(sync.detail.replace("\0", "?"), MAX_DETAIL_LENGTH, ending="… (cut)"),
        report_time=to_timestamp(sync.report_time) if sync.report_time else None,
    )
    message.version.CopyFrom(version_to_proto(sync.version))
    return message


def sync_from_proto(message: pb.WeightSync) -> WeightSync:
    """Read a sync that ended. Raises `InvalidRequestError` for an outcome that is none."""
    outcome = next((value for value, number in _OUTCOMES.items() if number == message.outcome), None)
    if outcome is None:
        raise InvalidRequestError(f"sync.outcome = {message.outcome}: give {', '.join(_OUTCOMES)}")
    return WeightSync(
        sync_id=message.sync_id,
        version=version_from_proto(message.version),
        outcome=outcome,
        seconds=message.seconds,
        stall_seconds=message.stall_seconds,
        engines=tuple(message.engines),
        detail=message.detail,
        report_time=to_seconds(message.report_time),
    )


def answer_to_proto(answer: SyncAnswer) -> service_pb.RequestWeightSyncResponse:
    """Write what becomes of a request."""
    return service_pb.RequestWeightSyncResponse(outcome=_ANSWERS[answer.outcome], version=answer.version)


def answer_from_proto(message: service_pb.RequestWeightSyncResponse) -> SyncAnswer:
    """Read what becomes of a request."""
    outcome = next(value for value, number in _ANSWERS.items() if number == message.outcome)
    return SyncAnswer(outcome=outcome, version=message.version if message.HasField("version") else None)


def lease_to_proto(lease: OrchestratorLease) -> pb.OrchestratorLease:
    """Write an orchestrator's lease."""
    return pb.OrchestratorLease(
        orchestrator=orchestrator_to_proto(lease.orchestrator),
        holder=lease.holder,
        expire_time=to_timestamp(lease.expire_time),
    )


def lease_from_proto(message: pb.OrchestratorLease) -> OrchestratorLease:
    """Read an orchestrator's lease."""
    return OrchestratorLease(
        orchestrator=orchestrator_from_proto(message.orchestrator),
        holder=message.holder,
        expire_time=to_seconds(message.expire_time),
    )


def state_to_proto(state: SyncState) -> pb.WeightSyncState:
    """Write all about a run's syncs."""
    deadline = state.shutdown_deadline
    return pb.WeightSyncState(
        run=state.run,
        attempt=state.attempt,
        sealed_step=state.sealed_step,
        consumed_step=state.consumed_step,
        requested=state.requested,
        last_requested=state.last_requested,
        last_sealed=state.last_sealed,
        ended=state.ended,
        shutdown_deadline=None if deadline is None else to_timestamp(deadline),
        holds=[pb.Hold(hold_id=hold.hold_id, expire_time=to_timestamp(hold.expire_time)) for hold in state.holds],
        lease=None if state.lease is None else lease_to_proto(state.lease),
        landed=None if state.landed is None else version_to_proto(state.landed),
        syncs=[sync_to_proto(sync) for sync in state.syncs],
        max_steps=state.max_steps or 0,
    )


def state_from_proto(message: pb.WeightSyncState) -> SyncState:
    """Read all about a run's syncs."""
    return SyncState(
        run=message.run,
        attempt=message.attempt,
        sealed_step=message.sealed_step,
        consumed_step=message.consumed_step,
        requested=tuple(message.requested),
        last_requested=message.last_requested,
        last_sealed=message.last_sealed,
        ended=message.ended,
        shutdown_deadline=to_seconds(message.shutdown_deadline) if message.HasField("shutdown_deadline") else None,
        holds=tuple(Hold(hold_id=hold.hold_id, expire_time=to_seconds(hold.expire_time)) for hold in message.holds),
        lease=lease_from_proto(message.lease) if message.HasField("lease") else None,
        landed=version_from_proto(message.landed) if message.HasField("landed") else None,
        syncs=tuple(sync_from_proto(sync) for sync in message.syncs),
        max_steps=message.max_steps or None,
    )
