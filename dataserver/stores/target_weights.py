"""What the targets of rows weigh: whole rows for the index, and what is served of longer ones for a view."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.index import Building
from dataserver.stores.shard_rows import ShardRows
from dataserver.stores.slices import Wanted
from dataserver.stores.tables import Tables

_CHUNK_ROWS: Final = 1 << 20
_CHUNK_TOKENS: Final = 1 << 22


def target_weights(
    weights: NDArray[np.float32], mask: NDArray[Any] | None, begins: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sum of the weights of each row's targets from its second token on, float64[n].

    `weights`: float32[m], of rows end to end that begin at `begins` (int64[n], ascending); `mask`: [m] of 0 and 1, None
    where all tokens are targets. No row is empty.
    """
    counted = weights.astype(np.float64)
    if mask is not None:
        counted *= mask
    counted[begins] = 0
    return np.add.reduceat(counted, begins)


def write_served_weights(
    building: Building,
    name: str,
    tables: Tables,
    whole: NDArray[np.float64],
    shard_rows: ShardRows,
    *,
    max_length: int,
    kept: NDArray[np.int64] | None,
    offsets: NDArray[np.int32] | None,
    count: int,
) -> None:
    """Write the array `name`: the weight of the targets that are served of each of `count` rows, float64.

    `kept`: their numbers in the store, None for all; `offsets`: the first token of each, None where rows are cut to
    their prefix. `whole`: the weights of whole rows. Only rows longer than `max_length` are read.
    """
    for begin in range(0, count, _CHUNK_ROWS):
        end = min(begin + _CHUNK_ROWS, count)
        rows = np.arange(begin, end, dtype=np.int64) if kept is None else kept[begin:end]
        starts = np.zeros(len(rows), dtype=np.int64) if offsets is None else offsets[begin:end].astype(np.int64)
        sums = whole[rows].copy()
        long_at = np.flatnonzero(tables.lengths[rows] > max_length)
        step = max(1, _CHUNK_TOKENS // max_length)
        for first in range(0, len(long_at), step):
            at = long_at[first : first + step]
            lengths = np.minimum(tables.lengths[rows[at]] - starts[at], max_length).astype(np.int64)
            found = shard_rows.read(rows[at], lengths, Wanted(mask=True, weights=True), offsets=starts[at])
            sums[at] = target_weights(
                np.frombuffer(b"".join(found.loss_weight), dtype="<f4"),
                np.frombuffer(b"".join(found.loss_mask), dtype=np.uint8),
                np.cumsum(lengths) - lengths,
            )
        building.append(name, sums)
