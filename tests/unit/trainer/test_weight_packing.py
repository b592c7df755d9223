"""Buckets are what receivers reckon them to be, and the checksum is XXH3 over XXH3s."""

import torch
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dataserver.weight_buckets import TensorSpec, WeightsChecksum, pack, pack_in_order
from orchestrator.engines.interface import TensorSpec as Expected
from trainer.launch import World
from trainer.weights.checksum import checksum_over_ranks, digests_of
from trainer.weights.filesystem import safetensors_header

ALONE = World(rank=0, size=1, local_rank=0, device=torch.device("cpu"), holder="test", under_torchrun=False)


@given(sizes=st.lists(st.integers(0, 40)), bucket_bytes=st.integers(1, 100))
def test_engines_cut_the_same_buckets(sizes: list[int], bucket_bytes: int) -> None:
    names = [str(index) for index in range(len(sizes))]
    theirs = pack(
        [Expected(name=n, dtype="bfloat16", shape=(s,)) for n, s in zip(names, sizes, strict=True)], bucket_bytes
    )
    ours = pack_in_order([2 * size for size in sizes], bucket_bytes)
    assert [[names[index] for index in bucket] for bucket in ours] == [[t.name for t in bucket] for bucket in theirs]


def test_a_bucket_holds_at_most_its_bytes_and_a_larger_weight_travels_alone() -> None:
    assert pack_in_order([4, 4, 1, 20, 3, 8], 8) == [range(2), range(2, 3), range(3, 4), range(4, 5), range(5, 6)]
    assert pack_in_order([], 8) == []


def test_the_checksum_is_that_of_the_engines() -> None:
    weights = [torch.arange(size, dtype=torch.uint8) for size in (3, 0, 200)]
    digests = digests_of(torch.cat(weights), [3, 0, 200])
    assert digests == [xxhash.xxh3_128_digest(weight.numpy().tobytes()) for weight in weights]
    expected = WeightsChecksum()
    for weight in weights:
        expected.add(weight.numpy().data)
    assert checksum_over_ranks(dict(enumerate(digests)), 3, ALONE) == expected.hexdigest()


def test_data_of_a_file_begins_at_a_multiple_of_eight() -> None:
    for length in range(1, 12):
        header = safetensors_header([TensorSpec(name="w" * length, dtype="float32", shape=(2, 3))])
        assert len(header) % 8 == 0
        assert int.from_bytes(header[:8], "little") == len(header) - 8
