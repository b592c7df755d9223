"""A shuffle aligned with storage: rows are mixed within windows of blocks, and each block is used once an epoch.

    blocks in store order, around a ring from an epoch's own beginning on, in W strata (here 3):
                              0 1 2 3 │ 4 5 6 7 │ 8 9 10 11
    in each an order          2 3 1 0 │ 7 6 4 5 │ 10 11 9 8
    window m: the m-th each   {2 7 10} {3 6 11} {1 4 9} {0 5 8}
    in a window, all rows in one permutation

One block of each stratum makes a window a fair sample of the whole store, also where sources lie
end to end. The orders of the strata go hand in hand: at one time all of them take blocks of the same
cell, a few neighbours (here two: first the right ones, then the left ones), and only within a cell
is each in an order of its own. So the blocks of a window are spaced about evenly over the store, and
a stretch of it that is short of a stratum at one end is over at the other.

A store is read once an epoch by whoever can hold the blocks of one window, of two while a step
reaches from one into the next. Memory: a few integers a block and an epoch.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import OutOfRangeError
from dataserver.sampling.arrangement import derived_seed
from dataserver.sampling.hashing import mixed
from dataserver.sampling.permutation import Permutation

# Blocks of a stratum that are in an order of their own: enough for other windows every epoch.
_CELL_BLOCKS = 4
_MAX_CELLS = 2**16
_CELL_SHIFT = np.uint64(48)
_HASH_SHIFT = np.uint64(16)

# Epochs whose windows are remembered: a stretch may reach over the end of one.
_EPOCHS_REMEMBERED = 2


@dataclass(frozen=True, slots=True)
class _Epoch:
    """`windows`: int64[m, W], blocks of each window, -1 for none. `ends`: int64[m], where each ends."""

    windows: NDArray[np.int64]
    ends: NDArray[np.int64]


class BlockShuffled:
    """An `Arrangement` of rows in blocks of `block_rows` (int64[b], each at least 0), `window` blocks at a time.

    Safe to share between threads.
    """

    def __init__(self, block_rows: NDArray[np.int64], window: int, seed: int) -> None:
        used = np.flatnonzero(block_rows)
        self.size = int(block_rows.sum())
        # The last block stands for a missing one: no rows.
        self._counts = np.append(block_rows[used], 0)
        self._begins = np.append((np.cumsum(block_rows) - block_rows)[used], 0)
        self._seed = seed
        self._windows = -(-len(used) // window)
        self._epoch = lru_cache(maxsize=_EPOCHS_REMEMBERED)(self._laid_out)

    def rows(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `Arrangement.rows`; raises `OutOfRangeError` for a position outside of the epoch."""
        if len(positions) == 0:
            return np.empty(0, dtype=np.int64)
        if not 0 <= positions[0] <= positions[-1] < self.size:
            raise OutOfRangeError(f"positions {positions[0]}..{positions[-1]} are not in an epoch of {self.size} rows")
        layout = self._epoch(epoch)
        windows = np.searchsorted(layout.ends, positions, side="right")
        rows = np.empty(len(positions), dtype=np.int64)
        for number in range(int(windows[0]), int(windows[-1]) + 1):
            here = slice(*np.searchsorted(windows, [number, number + 1]))
            rows[here] = self._window_rows(epoch, number, layout, positions[here])
        return rows

    def _window_rows(self, epoch: int, number: int, layout: _Epoch, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        blocks = layout.windows[number]
        ends = np.cumsum(self._counts[blocks])
        size, end = int(ends[-1]), int(layout.ends[number])
        mixed_up = Permutation(size, derived_seed(self._seed, "window", number), epoch)(positions - (end - size))
        member = np.searchsorted(ends, mixed_up, side="right")
        block = blocks[member]
        rows: NDArray[np.int64] = self._begins[block] + mixed_up - (ends[member] - self._counts[block])
        return rows

    def _laid_out(self, epoch: int) -> _Epoch:
        windows, blocks = self._windows, len(self._counts) - 1
        strata = -(-blocks // windows)
        slots, key = strata * windows, derived_seed(self._seed, "blocks", epoch)
        # Slots on the ring; where there are more than blocks, the empty ones are spread evenly.
        slot = (np.arange(slots, dtype=np.int64) + key % slots) % slots
        block = slot * blocks // slots
        block[(slot + 1) * blocks // slots == block] = -1
        order = np.argsort(_keys(strata, windows, self._seed, epoch, key), axis=1, kind="stable")
        members = np.ascontiguousarray(np.take_along_axis(block.reshape(strata, windows), order, axis=1).T)
        return _Epoch(members, np.cumsum(self._counts[members].sum(axis=1)))


def _keys(strata: int, windows: int, seed: int, epoch: int, key: int) -> NDArray[np.uint64]:
    """By these each stratum is sorted, uint64[strata, windows]: the cell's rank, alike in all, then a hash."""
    cells = min(max(1, windows // _CELL_BLOCKS), _MAX_CELLS)
    cell_hashes = mixed(np.arange(cells, dtype=np.uint64), derived_seed(seed, "cells", epoch))
    ranks = np.argsort(np.argsort(cell_hashes, kind="stable"), kind="stable").astype(np.uint64)
    hashes = mixed(np.arange(strata * windows, dtype=np.uint64), key).reshape(strata, windows)
    return (ranks[np.arange(windows) * cells // windows] << _CELL_SHIFT) | (hashes >> _HASH_SHIFT)
