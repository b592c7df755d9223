"""What a stream says besides micro-batches, as serialized `StreamMicroBatchesResponse`s."""

from dataserver.cursor import Cursor
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.streaming.supply import Stamp
from dataserver.v1 import batch_service_pb2 as pb
from dataserver.weight_sync import Offer, ShutdownHold
from dataserver.wire.messages import cursor_to_proto
from dataserver.wire.offers import offer_to_proto, orchestrator_to_proto, shutdown_hold_to_proto
from dataserver.wire.responses import encode_response


def encode_opened(base: Cursor, server_id: str, offer: Offer | None = None) -> bytes:
    """The open was accepted; the attempt, or the reading of a held-out store, began at `base`."""
    offered = None if offer is None else offer_to_proto(offer)
    opened = pb.Opened(base=cursor_to_proto(base), server_id=server_id, offer=offered)
    return encode_response(pb.StreamMicroBatchesResponse(opened=opened))


def encode_step_begun(plan: Plan, stamp: Stamp) -> bytes:
    """A step is ready, and its micro-batches follow."""
    begun = pb.StepBegun(
        step=plan.step,
        rounds=len(plan.rounds),
        end=cursor_to_proto(plan.end),
        plan_digest=plan.digest,
        sync_weights=stamp.sync_weights,
        last=plan.last,
        target_count=plan.target_count,
        token_count=plan.token_count,
        sample_count=len(plan.samples),
        weight_sum=plan.weight_sum,
        orchestrator=orchestrator_to_proto(stamp.orchestrator),
    )
    return encode_response(pb.StreamMicroBatchesResponse(step_begun=begun))


def encode_offer(offer: Offer) -> bytes:
    """The last version is offered again."""
    return encode_response(pb.StreamMicroBatchesResponse(offer=offer_to_proto(offer)))


def encode_shutdown_hold(hold: ShutdownHold) -> bytes:
    """Neither an offer nor the end follows yet."""
    return encode_response(pb.StreamMicroBatchesResponse(shutdown_hold=shutdown_hold_to_proto(hold)))


def encode_end_of_run(end: EndOfRun) -> bytes:
    """No step follows."""
    ended = pb.EndOfRun(end=cursor_to_proto(end.end), reason=end.reason)
    return encode_response(pb.StreamMicroBatchesResponse(end_of_run=ended))
