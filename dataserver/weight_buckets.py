"""What trainer and engines have to compute alike: which weights travel together, how long each is, and their checksum.

Weights are packed in their order into buckets of at most so many bytes. A bucket on a wire is the bytes of its weights,
one after another, in C order. vLLM's workers import this module too: it needs xxhash and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import xxhash

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

# The bytes of a weight.
Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A weight, by the name under which vLLM loads it. `dtype`: `float32`, `bfloat16` or `float16`."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]


def pack(tensors: Sequence[TensorSpec], bucket_bytes: int) -> list[list[TensorSpec]]:
    """The buckets, in order."""
    buckets = pack_in_order([tensor.size for tensor in tensors], bucket_bytes)
    return [[tensors[index] for index in bucket] for bucket in buckets]


def pack_in_order(sizes: Sequence[int], bucket_bytes: int) -> list[range]:
    """Indices of each bucket, in order. What is larger than `bucket_bytes` is a bucket of its own."""
    buckets: list[range] = []
    begin = filled = 0
    for index, size in enumerate(sizes):
        if index > begin and filled + size > bucket_bytes:
            buckets.append(range(begin, index))
            begin, filled = index, 0
        filled += size
    if begin < len(sizes):
        buckets.append(range(begin, len(sizes)))
    return buckets


def weight_digest(data: Buffer) -> bytes:
    """XXH3-128 of a weight's bytes as sent, 16 bytes in xxHash's canonical (big-endian) form.

    https://github.com/Cyan4973/xxHash
    """
    return xxhash.xxh3_128_digest(data)


class WeightsChecksum:
    """XXH3-128 over the digests of all weights, in their order."""

    def __init__(self) -> None:
        self._digests = xxhash.xxh3_128()

    def add(self, data: Buffer) -> None:
        """Takes the next weight's bytes."""
        self.add_digests(weight_digest(data))

    def add_digests(self, digests: Buffer) -> None:
        """Takes the digests of the next weights, one after another."""
        self._digests.update(digests)

    def hexdigest(self) -> str:
        """32 hexadecimal digits."""
        return self._digests.hexdigest()
