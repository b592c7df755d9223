"""One figure over everything that was sent.

    each weight's bytes ──XXH3-128──> 16 bytes each, in order ──XXH3-128──> 32 hexadecimal digits

What is digested, and how, engines know by the same code, `dataserver.weight_buckets`.
"""

from collections.abc import Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from dataserver.weight_buckets import WeightsChecksum, weight_digest
from trainer.launch import World

DIGEST_BYTES: Final = 16


def digests_of(data: Tensor, sizes: Sequence[int]) -> list[bytes]:
    """Digest of each weight in a bucket; `data`: uint8, on whatever device."""
    whole: memoryview = data.cpu().numpy().data
    found, begin = [], 0
    for size in sizes:
        found.append(weight_digest(whole[begin : begin + size]))
        begin += size
    return found


def checksum_over_ranks(digests: dict[int, bytes], count: int, world: World) -> str:
    """The checksum of `count` weights, of which each rank digested some. A collective of all ranks.

    `digests`: by the weight's place in the order. Every weight must have been digested on exactly one rank.
    """
    table = torch.zeros(count, DIGEST_BYTES, dtype=torch.uint8)
    for index, digest in digests.items():
        table[index] = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
    if world.size > 1:
        dist.all_reduce(table, dist.ReduceOp.SUM)
    checksum = WeightsChecksum()
    checksum.add_digests(table.numpy().tobytes())
    return checksum.hexdigest()
