"""How weights are cut into messages, and what their checksum is: both sides of a transfer compute the same.

Weights are packed in their order into buckets of at most `bucket_bytes`; one that is larger is a
bucket of its own. A bucket on a wire is the bytes of its weights, one after another.
"""

from collections.abc import Sequence
from math import prod

import xxhash

from dataserver.weight_buckets import pack_in_order
from orchestrator.engines.interface import TensorSpec

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


# The bytes of a weight.
Buffer = bytearray | memoryview


def nbytes(tensor: TensorSpec) -> int:
    """Bytes of a weight."""
    return prod(tensor.shape) * ITEM_BYTES[tensor.dtype]


def pack(tensors: Sequence[TensorSpec], bucket_bytes: int) -> list[list[TensorSpec]]:
    """The buckets, in order."""
    buckets = pack_in_order([nbytes(tensor) for tensor in tensors], bucket_bytes)
    return [[tensors[index] for index in bucket] for bucket in buckets]


class WeightsChecksum:
    """XXH3-128 over the digests of all weights in order, each XXH3-128 of the weight's bytes as sent."""

    def __init__(self) -> None:
        self._digests = xxhash.xxh3_128()

    def add(self, data: Buffer) -> None:
        """Takes the next weight's bytes."""
        self._digests.update(xxhash.xxh3_128_digest(data))

    def hexdigest(self) -> str:
        """32 hexadecimal digits."""
        return self._digests.hexdigest()
