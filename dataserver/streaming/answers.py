"""What a stream says besides micro-batches, as serialized `StreamMicroBatchesResponse`s."""

from dataserver.cursor import Cursor
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.v1 import batch_service_pb2 as pb
from dataserver.wire.messages import cursor_to_proto
from dataserver.wire.responses import encode_response


def encode_opened(base: Cursor, server_id: str) -> bytes:
    """The open was accepted; the attempt, or the reading of a held-out store, began at `base`."""
    opened = pb.Opened(base=cursor_to_proto(base), server_id=server_id)
    return encode_response(pb.StreamMicroBatchesResponse(opened=opened))


def encode_step_begun(plan: Plan, *, sync_weights: bool) -> bytes:
    """A step is ready, and its micro-batches follow."""
    begun = pb.StepBegun(
        step=plan.step,
        rounds=len(plan.rounds),
        end=cursor_to_proto(plan.end),
        plan_digest=plan.digest,
        sync_weights=sync_weights,
        last=plan.last,
        target_count=plan.target_count,
        token_count=plan.token_count,
        sample_count=len(plan.samples),
        weight_sum=plan.weight_sum,
    )
    return encode_response(pb.StreamMicroBatchesResponse(step_begun=begun))


def encode_end_of_run(end: EndOfRun) -> bytes:
    """No step follows."""
    ended = pb.EndOfRun(end=cursor_to_proto(end.end), reason=end.reason)
    return encode_response(pb.StreamMicroBatchesResponse(end_of_run=ended))
