"""Both sides of a transfer cut and digest weights alike."""

from itertools import pairwise

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dataserver.weight_buckets import TensorSpec, WeightsChecksum, pack

SPECS = st.lists(
    st.builds(
        TensorSpec,
        name=st.just("w"),
        dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
        shape=st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    ),
    max_size=30,
)


def spec(name: str, *shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def test_a_bucket_is_full_when_the_next_weight_does_not_fit_and_a_large_one_travels_alone() -> None:
    tensors = [
        spec("a", 4),
        spec("b", 3),
        spec("c", 3),
        spec("large", 100),
        spec("d", 1),
        spec("e", 6, dtype="bfloat16"),
    ]
    buckets = pack(tensors, bucket_bytes=28)
    assert [[tensor.name for tensor in bucket] for bucket in buckets] == [["a", "b"], ["c"], ["large"], ["d", "e"]]


@given(SPECS, st.integers(1, 400))
def test_buckets_keep_the_order_and_are_no_larger_than_they_may(tensors: list[TensorSpec], bucket_bytes: int) -> None:
    buckets = pack(tensors, bucket_bytes)
    assert [tensor for bucket in buckets for tensor in bucket] == tensors
    assert all(len(bucket) == 1 or sum(tensor.size for tensor in bucket) <= bucket_bytes for bucket in buckets)
    # None could have taken the weight that begins the next.
    for bucket, following in pairwise(buckets):
        assert sum(tensor.size for tensor in bucket) + following[0].size > bucket_bytes


def test_the_checksum_is_the_digest_of_the_digests_in_order() -> None:
    checksum = WeightsChecksum()
    for data in (b"first", b"second"):
        checksum.add(bytearray(data))
    digests = xxhash.xxh3_128_digest(b"first") + xxhash.xxh3_128_digest(b"second")
    assert checksum.hexdigest() == xxhash.xxh3_128_hexdigest(digests)


@pytest.mark.parametrize("order", [(b"ab", b"c"), (b"a", b"bc"), (b"c", b"ab")])
def test_other_bounds_or_another_order_give_another_checksum(order: tuple[bytes, bytes]) -> None:
    checksum, other = WeightsChecksum(), WeightsChecksum()
    for data in (b"a", b"b", b"c"):
        checksum.add(bytearray(data))
    for data in order:
        other.add(bytearray(data))
    assert checksum.hexdigest() != other.hexdigest()
