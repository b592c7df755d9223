"""What a stream says about syncs, between values and messages."""

from dataserver.v1 import batch_service_pb2, policy_version_pb2, weight_sync_pb2
from dataserver.weight_sync import Offer, OrchestratorAddress, PolicyVersion, ShutdownHold
from dataserver.wire.times import to_seconds, to_timestamp


def version_to_proto(version: PolicyVersion) -> policy_version_pb2.PolicyVersion:
    """Write a version."""
    return policy_version_pb2.PolicyVersion(attempt=version.attempt, number=version.number)


def version_from_proto(message: policy_version_pb2.PolicyVersion) -> PolicyVersion:
    """Read a version."""
    return PolicyVersion(attempt=message.attempt, number=message.number)


def orchestrator_to_proto(orchestrator: OrchestratorAddress | None) -> weight_sync_pb2.OrchestratorAddress | None:
    """Write where an orchestrator is; nothing for none."""
    if orchestrator is None:
        return None
    return weight_sync_pb2.OrchestratorAddress(epoch=orchestrator.epoch, address=orchestrator.address)


def orchestrator_from_proto(message: weight_sync_pb2.OrchestratorAddress) -> OrchestratorAddress:
    """Read where an orchestrator is."""
    return OrchestratorAddress(epoch=message.epoch, address=message.address)


def offer_to_proto(offer: Offer) -> weight_sync_pb2.Offer:
    """Write an offer."""
    return weight_sync_pb2.Offer(
        number=offer.number,
        version=version_to_proto(offer.version),
        sync_weights=offer.sync_weights,
        orchestrator=orchestrator_to_proto(offer.orchestrator),
    )


def offer_from_proto(message: weight_sync_pb2.Offer) -> Offer:
    """Read an offer."""
    return Offer(
        number=message.number,
        version=version_from_proto(message.version),
        sync_weights=message.sync_weights,
        orchestrator=orchestrator_from_proto(message.orchestrator) if message.HasField("orchestrator") else None,
    )


def shutdown_hold_to_proto(hold: ShutdownHold) -> batch_service_pb2.ShutdownHold:
    """Write why a stream stays open."""
    deadline = None if hold.deadline is None else to_timestamp(hold.deadline)
    return batch_service_pb2.ShutdownHold(reason=hold.reason, deadline=deadline)


def shutdown_hold_from_proto(message: batch_service_pb2.ShutdownHold) -> ShutdownHold:
    """Read why a stream stays open."""
    return ShutdownHold(
        reason=message.reason, deadline=to_seconds(message.deadline) if message.HasField("deadline") else None
    )
