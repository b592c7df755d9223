"""What is served of rows that are cut or split: which targets there are, and what they weigh, only their masks tell."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.destination import Destination
from dataserver.stores.shard_rows import ShardRows
from dataserver.stores.target_weights import target_weights

# Tokens of rows that are read at a time, so that memory is bounded at any number of them.
_CHUNK_TOKENS: Final = 1 << 22


def prefix_targets(shard_rows: ShardRows, rows: NDArray[np.int64], max_length: int) -> NDArray[np.int64]:
    """Targets at positions 1 up to `max_length` - 1 of `rows` (int64[n]), which are longer than that."""
    counts = np.empty(len(rows), dtype=np.int64)
    lengths = np.full(len(rows), max_length, dtype=np.int64)
    for part in _parts(lengths):
        mask = np.empty(int(lengths[part].sum()), dtype=np.uint8)
        shard_rows.read(rows[part], lengths[part], Destination(begins=_begins(lengths[part]), loss_mask=mask))
        counts[part] = mask.reshape(-1, max_length)[:, 1:].sum(axis=1, dtype=np.int64)
    return counts


def served_weights(
    shard_rows: ShardRows, rows: NDArray[np.int64], offsets: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.float64]:
    """What the targets weigh among `lengths[i]` tokens of `rows[i]` from its token `offsets[i]` on, float64[n]."""
    sums = np.empty(len(rows), dtype=np.float64)
    for part in _parts(lengths):
        begins, tokens = _begins(lengths[part]), int(lengths[part].sum())
        mask, weights = np.empty(tokens, dtype=np.uint8), np.empty(tokens, dtype="<f4")
        into = Destination(begins=begins, loss_mask=mask, loss_weight=weights)
        shard_rows.read(rows[part], lengths[part], into, offsets=offsets[part])
        sums[part] = target_weights(weights, mask, begins)
    return sums


def _begins(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where rows begin that lie end to end."""
    return np.cumsum(lengths) - lengths


def _parts(lengths: NDArray[np.int64]) -> Iterator[slice]:
    """Stretches of about `_CHUNK_TOKENS` tokens, or of one row."""
    step = max(1, _CHUNK_TOKENS // max(1, int(lengths.max(initial=1))))
    for begin in range(0, len(lengths), step):
        yield slice(begin, begin + step)
