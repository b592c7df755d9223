"""The hand-written encoding against protobuf's own, and against a per-token reference."""

import struct
from dataclasses import fields

import numpy as np
import pytest
import xxhash
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from dataserver.cursor import Cursor, Deal, Window
from dataserver.errors import ChecksumMismatchError
from dataserver.v1 import batch_service_pb2 as pb
from dataserver.wire.fields import read_varint, varint
from dataserver.wire.messages import cursor_to_proto
from dataserver.wire.micro_batch import NO_TARGET, MicroBatch, decode_micro_batches, footprints
from dataserver.wire.micro_batch_writer import MicroBatchWriter
from dataserver.wire.responses import Opened, RunEnded, StepBegun, decode_response, encode_response


def decoded_one(data):
    """What a response carries, which is one thing."""
    (one,) = decode_response(data)
    return one


@st.composite
def packed(draw):
    """Draw (samples, alignment, dtype, positions of padding); a sample is (token ids, mask)."""
    dtype = draw(st.sampled_from([np.uint16, np.uint32]))
    token = st.integers(0, int(np.iinfo(dtype).max))
    pairs = st.lists(st.tuples(token, st.integers(0, 1)), min_size=1, max_size=9)
    return draw(st.lists(pairs, max_size=6)), draw(st.sampled_from([1, 2, 8])), dtype, draw(st.integers(0, 9))


def laid_out(samples, alignment, dtype, behind=0):
    tokens, mask = [], []
    for sample in samples:
        padding = -len(sample) % alignment
        tokens += [token for token, _ in sample] + [0] * padding
        mask += [bit for _, bit in sample] + [0] * padding
    tokens, mask = tokens + [0] * behind, mask + [0] * behind
    return (
        np.array([len(sample) for sample in samples], dtype=np.int64),
        np.array(tokens, dtype=dtype),
        np.array(mask, dtype=np.uint8),
    )


def same(one, other):
    return all(np.array_equal(getattr(one, field.name), getattr(other, field.name)) for field in fields(MicroBatch))


def encoded(samples, alignment, dtype, behind=0, *, step=3, round_index=1, sync_weights=False):
    lengths, tokens, mask = laid_out(samples, alignment, dtype, behind)
    occupied = footprints(lengths, alignment)
    begins = occupied.cumsum() - occupied
    writer = MicroBatchWriter(
        step=step,
        first_round=round_index,
        sync_weights=sync_weights,
        token_bytes=tokens.itemsize,
        alignment=alignment,
        row_ends=np.array([len(lengths)]),
        position_ends=np.array([len(tokens)]),
        begins=begins,
        lengths=lengths,
        loss_mask=mask,
    )
    for begin, to, length in zip(begins, writer.token_begins, lengths, strict=True):
        writer.tokens[to : to + length] = tokens[begin : begin + length]
    return writer.finish()


@given(packed(), st.booleans(), st.integers(1, 2**40), st.integers(0, 300))
def test_the_bytes_are_exactly_those_of_protobuf(batch, sync_weights, step, round_index):
    behind = batch[3]
    data = encoded(*batch, step=step, round_index=round_index, sync_weights=sync_weights)
    message = pb.StreamMicroBatchesResponse.FromString(data)
    assert message.SerializeToString(deterministic=True) == data
    (body,) = message.micro_batches
    assert (body.step, body.round, body.sync_weights) == (step, round_index, sync_weights)
    assert body.padding == behind
    checksum = body.checksum
    body.ClearField("checksum")
    assert checksum == xxhash.xxh3_64(body.SerializeToString(deterministic=True)).intdigest()


@given(packed())
def test_what_is_decoded_is_what_was_encoded(batch):
    lengths, tokens, mask = laid_out(*batch)
    dtype = batch[2]
    decoded = decoded_one(encoded(*batch))
    assert isinstance(decoded, MicroBatch)
    np.testing.assert_array_equal(decoded.lengths, lengths)
    np.testing.assert_array_equal(decoded.tokens, tokens)
    assert decoded.tokens.dtype == dtype
    np.testing.assert_array_equal(decoded.loss_mask, mask.astype(bool))
    assert not decoded.tokens.flags.writeable
    assert not decoded.loss_mask.flags.writeable


@given(packed())
def test_labels_and_positions_follow_a_reference_that_walks_token_by_token(batch):
    samples, alignment, _, behind = batch
    labels, positions, starts = [], [], [0]
    footprints = [len(sample) + -len(sample) % alignment for sample in samples]
    if behind:  # it belongs to the last sub-sequence, and is one by itself where there is none
        samples, footprints = samples or [[]], footprints or [0]
        footprints[-1] += behind
    for sample, footprint in zip(samples, footprints, strict=True):
        padded = sample + [(0, 0)] * (footprint - len(sample))
        following = [*padded[1:], (0, 0)]
        labels += [token if bit else NO_TARGET for token, bit in following]
        positions += range(footprint)
        starts.append(starts[-1] + footprint)
    decoded = decoded_one(encoded(*batch))
    assert decoded.labels.tolist() == labels
    assert decoded.positions.tolist() == positions
    assert decoded.cu_seqlens.tolist() == starts
    assert decoded.target_count == sum(label != NO_TARGET for label in labels)


@given(packed(), st.integers(1, 2**40), st.integers(0, 300))
def test_tokens_lie_aligned_and_what_follows_them_does(batch, step, round_index):
    data = encoded(*batch, step=step, round_index=round_index)
    width = np.dtype(batch[2]).itemsize
    assert len(data) % width == 0
    tokens = decoded_one(data).tokens
    assert not len(tokens) or (tokens.ctypes.data - np.frombuffer(data, np.uint8).ctypes.data) % width == 0


def test_a_size_at_which_its_own_length_grows_is_aligned_too():
    for count in [*range(20, 60), *range(4000, 4060)]:
        data = encoded([[(7, 1)] * count], 1, np.uint32)
        assert len(data) % 4 == 0
        assert decoded_one(data).tokens.flags.aligned
        assert pb.StreamMicroBatchesResponse.FromString(data).SerializeToString(deterministic=True) == data


def test_responses_end_to_end_are_one_response():
    parts = [encoded([[(5, 1), (6, 0)]] * count, 1, np.uint16, round_index=count) for count in range(3)]
    together = decode_response(b"".join(parts))
    assert [micro_batch.round for micro_batch in together] == [0, 1, 2]
    assert all(same(one, decoded_one(part)) for one, part in zip(together, parts, strict=True))
    message = pb.StreamMicroBatchesResponse.FromString(b"".join(parts))
    assert [body.round for body in message.micro_batches] == [0, 1, 2]
    assert message.SerializeToString(deterministic=True) == b"".join(parts)
    for foreign in (encode_response(pb.StreamMicroBatchesResponse(opened=pb.Opened())), b"\x1a", b"x"):
        with pytest.raises(ChecksumMismatchError):
            decode_response(parts[0] + foreign)


def test_every_damaged_byte_of_a_micro_batch_is_noticed():
    samples = [[(5, 1), (6, 0), (7, 1)], [(8, 0), (9, 1)]]
    whole = encoded(samples, 1, np.uint16)
    original = decoded_one(whole)
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        try:
            decoded = decoded_one(bytes(damaged))
        except ChecksumMismatchError:
            continue
        # What a flip makes of a tag may be another message, or a field that nobody knows; never other tokens.
        assert not isinstance(decoded, MicroBatch) or same(decoded, original), f"byte {at}"


def sealed(body):
    """A response of one micro-batch, by protobuf alone, whose checksum is right whatever it says."""
    content = body if isinstance(body, bytes) else body.SerializeToString(deterministic=True)
    whole = b"\x09" + xxhash.xxh3_64_intdigest(content).to_bytes(8, "little") + content
    return b"\x1a" + varint(len(whole)) + whole


@pytest.mark.parametrize(
    "field",
    [
        varint(5 << 3) + varint(3),  # token_bytes
        varint(6 << 3) + varint(0),  # alignment
        varint(6 << 3) + varint(2**62),
        varint(8 << 3) + varint(2**63 + 10),  # padding
        varint(3 << 3) + varint(2**31),  # round
        varint(7 << 3) + varint(2**64 - 1),  # target_count
        varint(2 << 3) + varint(2**63),  # step
        varint(9 << 3 | 2) + varint(15) + bytes(15),  # lengths
        varint(9 << 3 | 2) + varint(8) + struct.pack("<2I", 4, 0),
        varint(9 << 3 | 2) + varint(16) + struct.pack("<4I", 5, 5, 5, 2**32 - 1),
    ],
)
def test_numbers_that_cannot_be_are_refused_whatever_their_checksum(field):
    good = pb.MicroBatch(step=1, token_bytes=2, alignment=1, lengths=[4], loss_mask=b"\x0e", tokens=bytes(8))
    assert decoded_one(sealed(good)).tokens.tolist() == [0] * 4
    with pytest.raises(ChecksumMismatchError):
        decoded_one(sealed(good.SerializeToString() + field))


def test_footprints_that_would_add_up_to_nothing_are_refused():
    body = pb.MicroBatch(step=1, token_bytes=2, lengths=[5] * 4, loss_mask=bytes(2), tokens=bytes(20), padding=10)
    with pytest.raises(ChecksumMismatchError, match="alignment 4611686018427387904"):
        decoded_one(sealed(body.SerializeToString() + varint(6 << 3) + varint(2**62)))


@pytest.mark.parametrize("data", [b"\x1a", b"\x1a\x05ab", b"garbage", b"", b"\x1a\x02\x7f\x01", b"\x1a\x02\x08\xff"])
def test_bytes_that_are_no_response_are_refused(data):
    with pytest.raises(ChecksumMismatchError):
        decoded_one(data)


def test_cursors_ride_along_unchanged():
    deal = Deal(
        dp_world_size=2, micro_batch_tokens=64, alignment=1, cost_linear=1, cost_quadratic=0, policy="balanced",
        planner_version=1,
    )  # fmt: skip
    window = Window(steps=4, steps_done=1, samples=17, deal=deal)
    cursor = Cursor(order_fingerprint="f", stage=1, step=5, epoch=2, position=9, source_positions=(4, 5), window=window)
    begun = pb.StepBegun(
        step=5, rounds=2, end=cursor_to_proto(cursor), plan_digest="d", sync_weights=True, last=True,
        target_count=10, token_count=20, sample_count=3, weight_sum=7.5,
    )  # fmt: skip
    decoded = decoded_one(encode_response(pb.StreamMicroBatchesResponse(step_begun=begun)))
    assert decoded == StepBegun(
        step=5, rounds=2, end=cursor, plan_digest="d", sync_weights=True, last=True,
        target_count=10, token_count=20, sample_count=3, weight_sum=7.5,
    )  # fmt: skip
    opened = pb.Opened(base=cursor_to_proto(cursor), server_id="a")
    assert decoded_one(encode_response(pb.StreamMicroBatchesResponse(opened=opened))) == Opened(
        base=cursor, server_id="a"
    )
    ended = pb.EndOfRun(end=cursor_to_proto(cursor), reason="max_steps")
    assert decoded_one(encode_response(pb.StreamMicroBatchesResponse(end_of_run=ended))) == RunEnded(
        end=cursor, reason="max_steps"
    )


@pytest.mark.parametrize("kind", ["opened", "step_begun", "end_of_run"])
def test_every_single_flipped_bit_of_a_message_without_tokens_is_noticed(kind):
    place = cursor_to_proto(Cursor(order_fingerprint="f", step=5, epoch=2, position=9))
    response = {
        "opened": pb.StreamMicroBatchesResponse(opened=pb.Opened(base=place, server_id="a")),
        "step_begun": pb.StreamMicroBatchesResponse(
            step_begun=pb.StepBegun(step=5, rounds=2, end=place, plan_digest="d", target_count=10, token_count=20)
        ),
        "end_of_run": pb.StreamMicroBatchesResponse(end_of_run=pb.EndOfRun(end=place, reason="max_steps")),
    }[kind]
    whole = encode_response(response)
    decoded_one(whole)
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ChecksumMismatchError):
            decoded_one(bytes(damaged))


def test_the_checksum_is_a_field_of_the_contract_and_must_be_there():
    response = pb.StreamMicroBatchesResponse(opened=pb.Opened(base=cursor_to_proto(Cursor(order_fingerprint="f"))))
    content, whole = response.SerializeToString(), encode_response(response)
    response.checksum = xxhash.xxh3_64_intdigest(content)
    assert response.SerializeToString() == whole
    with pytest.raises(ChecksumMismatchError, match="without a checksum"):
        decoded_one(content)


def test_a_number_without_an_end_is_refused_after_ten_bytes():
    assert read_varint(b"\xff" * 9 + b"\x01", 0) == (2**64 - 1, 10)
    for number in (b"\xff" * 11, b"\xff" * 9 + b"\x02"):
        with pytest.raises(DecodeError, match="more than 64 bits"):
            read_varint(number, 0)
    with pytest.raises(ChecksumMismatchError):
        decode_micro_batches(b"\x1a" + b"\xff" * 100_000)
