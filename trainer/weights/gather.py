"""FSDP shards become whole weights in the serving type, bucket by bucket.

    shard ──cast──> shard in the serving type ──all-gather──> whole weight ──copy──> its place in the bucket

Casting first halves the traffic, and gives the same bits as casting last. What a rank needs
besides its shards is one whole weight and, if it sends the bucket, the bucket.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from dataserver.weight_buckets import TensorSpec
from trainer.weights.outgoing import Outgoing


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Weights that travel together. `data`: uint8, the bytes of `specs` one after another, in C order.

    `number`: the bucket; `first`: place of its first weight in the order of all.
    """

    number: int
    first: int
    specs: tuple[TensorSpec, ...]
    data: Tensor


def gather(outgoing: Outgoing, *, wanted: Callable[[int], bool], device: torch.device) -> Iterator[Bucket]:
    """Yield the buckets that are `wanted` on this rank, on `device`. A collective of all ranks, to its very end.

    Whoever stops before the end leaves the other ranks hanging.
    """
    for number, bucket in enumerate(outgoing.buckets):
        mine = wanted(number)
        specs = tuple(outgoing.specs[index] for index in bucket)
        data = torch.empty(sum(spec.size for spec in specs) if mine else 0, dtype=torch.uint8, device=device)
        begin = 0
        for index, spec in zip(bucket, specs, strict=True):
            whole = _whole(outgoing.weights[index], outgoing.dtype)
            if mine:
                data[begin : begin + spec.size].view(outgoing.dtype).view(spec.shape).copy_(whole)
            begin += spec.size
            del whole
        if mine:
            if data.is_cuda:
                # Whoever sends does so from another thread, on another stream.
                torch.cuda.current_stream().synchronize()
            yield Bucket(number=number, first=bucket.start, specs=specs, data=data)


def _whole(weight: Tensor, dtype: torch.dtype) -> Tensor:
    cast = weight.detach().to(dtype)
    return cast.full_tensor() if isinstance(cast, DTensor) else cast
