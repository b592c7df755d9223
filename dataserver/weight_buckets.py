"""Which weights travel together: in order, in buckets of at most so many bytes."""

from collections.abc import Sequence


def pack_in_order(sizes: Sequence[int], bucket_bytes: int) -> list[range]:
    """Indices of each bucket, in order. What is larger than `bucket_bytes` is a bucket of its own.

    Trainer and engines compute it each from the sizes alone, so this is part of the contract.
    """
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
