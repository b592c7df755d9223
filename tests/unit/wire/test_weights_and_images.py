"""Weights and images in the hot message: protobuf's own bytes, read-only views, nothing that a flip could change."""

from dataclasses import replace

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dataserver.errors import ChecksumMismatchError
from dataserver.v1 import batch_service_pb2 as pb
from dataserver.wire.fields import varint
from dataserver.wire.images import ImageSlices, decode_images, encode_images
from dataserver.wire.micro_batch import MicroBatch
from dataserver.wire.micro_batch_writer import MicroBatchWriter
from dataserver.wire.responses import decode_response

PIXELS = {2: np.dtype("<f2"), 4: np.dtype("<f4")}


def decoded_one(data):
    """What a response carries, which is one thing."""
    (one,) = decode_response(data)
    return one


@st.composite
def illustrated(draw):
    """Draw (grids, values) of each sub-sequence, a dtype and the width of a patch; sub-sequences have 1 to 3 images."""
    dtype = PIXELS[draw(st.sampled_from([2, 4]))]
    width = draw(st.integers(1, 5))
    side = st.integers(1, 3)
    grids = draw(st.lists(st.lists(st.tuples(side, side, side), min_size=1, max_size=3), max_size=4))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    grids = [np.array(grid, dtype="<i8") for grid in grids]
    return grids, [random.normal(size=(int(g.prod(axis=1).sum()), width)).astype(dtype) for g in grids], dtype, width


def slices_of(grids, pixels, dtype, width):
    return ImageSlices(
        pixel_bytes=dtype.itemsize,
        patch_values=width,
        grids=[grid.tobytes() for grid in grids],
        pixels=[values.tobytes() for values in pixels],
    )


def encoded(count, *, weights=None, images=None):
    """`count` sub-sequences of 3 tokens at alignment 4."""
    writer = MicroBatchWriter(
        step=3,
        first_round=1,
        sync_weights=True,
        token_bytes=2,
        alignment=4,
        row_ends=np.array([count]),
        position_ends=np.array([4 * count]),
        begins=4 * np.arange(count),
        lengths=np.full(count, 3, dtype=np.int64),
        loss_mask=np.tile(np.array([1, 0, 1, 0], dtype=np.uint8), count),
        loss_weight=weights,
        images=[images],
    )
    for begin in writer.token_begins:
        writer.tokens[begin : begin + 3] = (7, 8, 9)
    return writer.finish()


@given(illustrated(), st.booleans())
def test_the_bytes_are_exactly_those_of_protobuf(drawn, weighted):
    count = len(drawn[0])
    weights = np.arange(4 * count, dtype=np.float32) / 3 if weighted else None
    data = encoded(count, weights=weights, images=slices_of(*drawn))
    message = pb.StreamMicroBatchesResponse.FromString(data)
    assert message.SerializeToString(deterministic=True) == data
    (body,) = message.micro_batches
    assert body.HasField("images")
    checksum = body.checksum
    body.ClearField("checksum")
    assert checksum == xxhash.xxh3_64(body.SerializeToString(deterministic=True)).intdigest()


@given(illustrated())
def test_images_are_read_as_they_were_given_with_the_sub_sequence_of_each(drawn):
    grids, pixels, dtype, width = drawn
    images = decoded_one(encoded(len(grids), images=slices_of(*drawn))).images
    assert images.pixel_values.dtype == dtype
    assert images.pixel_values.shape[1:] == (width,)
    assert images.image_grid_thw.dtype == np.int64
    np.testing.assert_array_equal(images.pixel_values, np.concatenate([*pixels, np.zeros((0, width), dtype)]))
    np.testing.assert_array_equal(images.image_grid_thw, np.concatenate([*grids, np.zeros((0, 3), np.int64)]))
    assert images.sub_sequences.tolist() == [at for at, grid in enumerate(grids) for _ in grid]
    assert not images.pixel_values.flags.writeable
    assert not images.image_grid_thw.flags.writeable


def test_a_micro_batch_without_samples_tells_that_its_round_is_of_images():
    images = decoded_one(encoded(0, images=slices_of([], [], PIXELS[2], 5))).images
    assert images.pixel_values.shape == (0, 5)
    assert images.pixel_values.dtype == np.float16
    assert images.image_grid_thw.shape == (0, 3)
    assert decoded_one(encoded(0)).images is None


@given(st.lists(st.floats(0, 2.0**100, width=32), min_size=8, max_size=8))
def test_weights_are_float32_and_labels_have_those_of_the_tokens_that_they_predict(values):
    weights = np.array(values, dtype=np.float32)
    decoded = decoded_one(encoded(2, weights=weights))
    assert decoded.loss_weight.dtype == np.float32
    assert not decoded.loss_weight.flags.writeable
    np.testing.assert_array_equal(decoded.loss_weight, weights)
    assert decoded.label_weights.tolist() == [0, weights[2], 0, 0, 0, weights[6], 0, 0]
    unweighted = decoded_one(encoded(2))
    assert unweighted.loss_weight is None
    assert unweighted.label_weights.tolist() == [0, 1, 0, 0, 0, 1, 0, 0]


def test_every_damaged_byte_is_noticed():
    grids = [np.array([[1, 2, 1]], dtype="<i8"), np.array([[1, 1, 1], [1, 1, 2]], dtype="<i8")]
    pixels = [np.ones((2, 3), dtype="<f4"), np.ones((3, 3), dtype="<f4")]
    whole = encoded(2, weights=np.ones(8, dtype=np.float32), images=slices_of(grids, pixels, PIXELS[4], 3))
    original = decoded_one(whole)
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        try:
            decoded = decoded_one(bytes(damaged))
        except ChecksumMismatchError:
            continue
        # What a flip makes of a tag may be another message, or a field that nobody knows; never other values.
        assert not isinstance(decoded, MicroBatch) or same(decoded, original), f"byte {at}"


def same(one, other):
    return (
        np.array_equal(one.tokens, other.tokens)
        and np.array_equal(one.loss_weight, other.loss_weight)
        and np.array_equal(one.images.pixel_values, other.images.pixel_values)
        and np.array_equal(one.images.image_grid_thw, other.images.image_grid_thw)
    )


GRID = np.array([[1, 2, 2]], dtype="<i8").tobytes()


@pytest.mark.parametrize(
    "changed",
    [
        {"grids": [GRID]},
        {"grids": [GRID, GRID + GRID]},
        {"grids": [GRID, GRID[:-8]]},
        {"pixels": [bytes(40)]},
        {"patch_values": 4},
        {"patch_values": 0},
        {"patch_values": -5},
        {"pixel_bytes": 4},
        {"pixel_bytes": 3},
        {"grids": [GRID, np.array([[-1, -2, 2]], dtype="<i8").tobytes()]},
        {"grids": [GRID, np.array([[2**40, 2**40, 2**40]], dtype="<i8").tobytes()]},
    ],
)
def test_images_that_do_not_fit_together_are_refused_whatever_their_checksum(changed):
    whole = ImageSlices(pixel_bytes=2, patch_values=5, grids=[GRID, GRID], pixels=[bytes(40), bytes(40)])
    assert decoded_one(encoded(2, images=whole)).images.counts.tolist() == [1, 1]
    with pytest.raises(ChecksumMismatchError, match="step 3, round 1"):
        decoded_one(encoded(2, images=replace(whole, **changed)))


@pytest.mark.parametrize(
    ("counts", "patch_values"),
    [([2**62] * 4, 5), ([2**63 - 1, 2**63 - 1, 3, 0], 5), ([0] * 4, 2**62), ([0] * 4, 2**63)],
)
def test_counts_that_would_wrap_are_refused(counts, patch_values):
    images = b"\x08\x02\x10" + varint(patch_values) + b"\x1a" + varint(len(b"".join(map(varint, counts))))
    images += b"".join(map(varint, counts))
    with pytest.raises(ChecksumMismatchError, match="here: "):
        decode_images(memoryview(images), 4, "here")


def test_weights_of_another_number_of_positions_are_refused():
    message = pb.StreamMicroBatchesResponse.FromString(encoded(2, weights=np.ones(8, dtype=np.float32)))
    (body,) = message.micro_batches
    body.loss_weight = body.loss_weight[4:]
    body.ClearField("checksum")
    body.checksum = xxhash.xxh3_64_intdigest(body.SerializeToString(deterministic=True))
    with pytest.raises(ChecksumMismatchError, match="28 weight bytes"):
        decoded_one(message.SerializeToString())


def test_values_are_not_copied_before_the_message_is_written():
    values = memoryview(bytes(40))
    images = ImageSlices(pixel_bytes=2, patch_values=5, grids=[GRID], pixels=[values])
    assert any(part is values for part in encode_images(images))
