"""What a stream carries from the server to a rank, as values.

A micro-batch brings its own checksum. Every other message ends with one of all that stands before it:

    fields (by protobuf) | checksum tag, 8 bytes little-endian
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import xxhash
from google.protobuf.message import DecodeError

from dataserver.cursor import Cursor
from dataserver.errors import ChecksumMismatchError, InvalidRequestError
from dataserver.v1 import batch_service_pb2
from dataserver.weight_sync import Offer, OrchestratorAddress, ShutdownHold
from dataserver.wire.messages import cursor_from_proto
from dataserver.wire.micro_batch import MicroBatch, are_micro_batches, decode_micro_batches
from dataserver.wire.offers import offer_from_proto, orchestrator_from_proto, shutdown_hold_from_proto


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The server accepted the open; `base` is where the attempt began, `offer` its weights, where offers are taken."""

    base: Cursor
    server_id: str
    offer: Offer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBegun:
    """A step is sealed and `rounds` micro-batches of it follow. `end`: what a checkpoint after it holds.

    `weight_sum`: the weights of its targets, the denominator of the loss. `orchestrator`: whom to hand the weights
    over by, with `sync_weights`; None where none was there.
    """

    step: int
    rounds: int
    end: Cursor
    plan_digest: str
    sync_weights: bool
    last: bool
    target_count: int
    token_count: int
    sample_count: int
    weight_sum: float
    orchestrator: OrchestratorAddress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """There are no more steps, because of `max_steps` or `max_epochs`."""

    end: Cursor
    reason: str


Rare = Opened | StepBegun | Offer | ShutdownHold | RunEnded
Response = Rare | MicroBatch

# Field number << 3 | wire type; 1 is 64 bits.
_CHECKSUM: Final = bytes([15 << 3 | 1])
_CHECKSUM_FIELD_BYTES: Final = len(_CHECKSUM) + 8


def encode_response(message: batch_service_pb2.StreamMicroBatchesResponse) -> bytes:
    """Write a response without micro-batches, its checksum last."""
    content = message.SerializeToString()
    return content + _checksum_field(content)


def decode_response(data: bytes) -> Sequence[Response]:
    """Read one `StreamMicroBatchesResponse`: one thing, or micro-batches, whose arrays are views of `data`.

    Raises `ChecksumMismatchError` when the bytes are not a response, or a damaged one.
    """
    if are_micro_batches(data):
        return decode_micro_batches(data)
    if data[-_CHECKSUM_FIELD_BYTES:] != _checksum_field(data[:-_CHECKSUM_FIELD_BYTES]):
        raise ChecksumMismatchError(f"the server's message of {len(data)} bytes arrived damaged, or without a checksum")
    try:
        message = batch_service_pb2.StreamMicroBatchesResponse.FromString(data)
    except DecodeError as error:
        raise ChecksumMismatchError(f"the server sent {len(data)} bytes that are no message of this stream") from error
    try:
        return [_decode_rare(message)]
    except InvalidRequestError as error:
        raise ChecksumMismatchError(f"the server sent an impossible message: {error}") from error


def _checksum_field(content: bytes) -> bytes:
    return _CHECKSUM + xxhash.xxh3_64_intdigest(content).to_bytes(8, "little")


def _decode_rare(message: batch_service_pb2.StreamMicroBatchesResponse) -> Rare:
    kind = message.WhichOneof("message")
    if kind == "opened":
        opened = message.opened
        offer = offer_from_proto(opened.offer) if opened.HasField("offer") else None
        return Opened(base=cursor_from_proto(opened.base), server_id=opened.server_id, offer=offer)
    if kind == "step_begun":
        return _step_begun(message.step_begun)
    if kind == "offer":
        return offer_from_proto(message.offer)
    if kind == "shutdown_hold":
        return shutdown_hold_from_proto(message.shutdown_hold)
    if kind == "end_of_run":
        return RunEnded(end=cursor_from_proto(message.end_of_run.end), reason=message.end_of_run.reason)
    raise ChecksumMismatchError(f"the server sent a message of a kind that this client does not know: {kind}")


def _step_begun(message: batch_service_pb2.StepBegun) -> StepBegun:
    return StepBegun(
        step=message.step,
        rounds=message.rounds,
        end=cursor_from_proto(message.end),
        plan_digest=message.plan_digest,
        sync_weights=message.sync_weights,
        last=message.last,
        target_count=message.target_count,
        token_count=message.token_count,
        sample_count=message.sample_count,
        weight_sum=message.weight_sum,
        orchestrator=orchestrator_from_proto(message.orchestrator) if message.HasField("orchestrator") else None,
    )
