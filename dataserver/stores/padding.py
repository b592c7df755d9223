"""How much of micro-batches would hold no token, with rows packed and without: what packing is worth for a store."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataserver.run_spec import MAX_MICRO_BATCH_TOKENS, LongRows
from dataserver.sampling.permutation import Permutation
from dataserver.stores.selection import verdicts
from dataserver.stores.tables import Tables
from dataserver.wire.store_info import PaddingInfo

# Rows that are looked at, and samples of them: a few milliseconds, and shares that are right to the percent.
_ROWS: Final = 4096

# The smallest micro-batch that holds every sample, and larger ones.
_MULTIPLES: Final = (1, 2, 4, 8)

# With fewer micro-batches than these, the last one, which is not full, counts for too much.
_LEAST_MICRO_BATCHES: Final = 4


def estimate_padding(tables: Tables, max_length: int, long_rows: LongRows) -> tuple[PaddingInfo, ...]:
    """Padding at a few sizes of micro-batch, from samples of rows spread evenly over the store, in shuffled order."""
    lengths = _sampled_lengths(tables, max_length, long_rows)
    tokens = int(lengths.sum())
    smallest = 1 << max(0, int(lengths.max(initial=1)) - 1).bit_length()
    sizes = [smallest * multiple for multiple in _MULTIPLES]
    return tuple(
        PaddingInfo(
            micro_batch_tokens=size,
            rows=len(lengths),
            unpacked=1 - tokens / sum(_padded_batches(lengths, size)),
            packed=1 - tokens / (size * _best_fit(lengths, size)),
        )
        for size in sizes
        if tokens >= _LEAST_MICRO_BATCHES * size and size <= MAX_MICRO_BATCH_TOKENS
    )


def _sampled_lengths(tables: Tables, max_length: int, long_rows: LongRows) -> NDArray[np.int64]:
    """Tokens of the samples that some rows are served as, shuffled, int64[n]."""
    rows = np.arange(0, len(tables.lengths), max(1, len(tables.lengths) // _ROWS))
    lengths = tables.lengths[rows].astype(np.int64)
    kept = lengths[verdicts(tables, rows, max_length, long_rows) == 0]
    if long_rows is LongRows.SPLIT:
        wholes, tails = kept // max_length, kept % max_length
        # A last piece of one token is no sample.
        served = np.concatenate((np.full(int(wholes.sum()), max_length), tails[tails > (wholes > 0)]))
    else:
        served = np.minimum(kept, max_length)
    shuffled: NDArray[np.int64] = served[Permutation(len(served), seed=0, epoch=0)(np.arange(len(served)))]
    return shuffled[:_ROWS]


def _best_fit(lengths: NDArray[np.int64], capacity: int) -> int:
    """Micro-batches that hold the samples, the longest placed first, each where the least room is left.

    As good as what `packing` does, to the percent. That is compiled, and a report would wait most of its time for it.
    """
    rooms: list[int] = []
    count = 0
    for length in sorted(lengths.tolist(), reverse=True):
        at = bisect_left(rooms, length)
        if at == len(rooms):
            count += 1
            room = capacity
        else:
            room = rooms.pop(at)
        insort(rooms, room - length)
    return count


def _padded_batches(lengths: NDArray[np.int64], capacity: int) -> Iterator[int]:
    """Positions of each batch of samples in their order, all padded to the longest, as many as `capacity` holds."""
    longest = count = 0
    for length in lengths.tolist():
        widened = max(longest, length)
        if widened * (count + 1) > capacity:
            yield longest * count
            longest, count = length, 1
        else:
            longest, count = widened, count + 1
    yield longest * count
