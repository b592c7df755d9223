"""Evening out the bins of each round by exchanging samples between two of them.

In every round the costliest bin is paired with the cheapest, the second with the second to
last, and so on; each pair exchanges the two samples that bring its costs closest together, or
moves one. Both bins end between their former costs, so no round gets longer; and no bin gets
over its capacity. All pairs of all rounds are looked at at once.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.placement import Items
from dataserver.packing.rounds import EVEN, Arrangement

# Of each bin so many samples are tried, evenly spread over its lengths.
_TRIED = 20
_SWEEPS = 40
# Bound on the numbers that one sweep compares, so that memory and time are bounded.
_COMPARED = 2**17


def refine(items: Items, arrangement: Arrangement, *, capacity: int, compared: int = 16 * _COMPARED) -> Arrangement:
    """The same bins in the same rounds with samples exchanged within rounds; never a longer duration.

    `compared` bounds the pairs of samples that are looked at, whatever the size of the step.
    """
    room = np.full(len(arrangement.cost), capacity, dtype=np.int64)
    np.subtract.at(room, arrangement.bins, items.size)
    state = _State(items, arrangement.bins.copy(), arrangement.cost.copy(), room)
    for _ in range(_SWEEPS):
        high, low = _pairs(state.cost[arrangement.numbers], arrangement.numbers)
        high, low = high[: _COMPARED // (_TRIED + 1) ** 2], low[: _COMPARED // (_TRIED + 1) ** 2]
        compared -= len(high) * (_TRIED + 1) ** 2
        if not len(high) or compared < 0 or not state.exchange(high, low):
            break
    return Arrangement(bins=state.bins, numbers=arrangement.numbers, cost=state.cost)


def _pairs(table: NDArray[np.int64], numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bins to exchange from and to, the pairs with the widest gap in their round first."""
    order = np.argsort(-table, axis=1, kind="stable")
    half = table.shape[1] // 2
    ranked, costs = np.take_along_axis(numbers, order, axis=1), np.take_along_axis(table, order, axis=1)
    high, low = ranked[:, :half], ranked[:, ::-1][:, :half]
    gap = costs[:, :half] - costs[:, ::-1][:, :half]
    mean = table.sum(axis=1, keepdims=True) // table.shape[1]
    uneven = (costs[:, :1] - mean) * EVEN > mean
    chosen = np.flatnonzero((uneven & (gap > 0)).ravel())
    chosen = chosen[np.argsort(-gap.ravel()[chosen], kind="stable")]
    return high.ravel()[chosen], low.ravel()[chosen]


@dataclass(frozen=True, slots=True)
class _State:
    """The bin of each item, and the cost and the room of each bin; changed in place."""

    items: Items
    bins: NDArray[np.int64]
    cost: NDArray[np.int64]
    room: NDArray[np.int64]

    def exchange(self, high: NDArray[np.int64], low: NDArray[np.int64]) -> bool:
        """Exchange one sample of each `high` bin for one or none of its `low` bin; False when no pair can."""
        order = np.argsort(self.bins, kind="stable")
        counts = np.bincount(self.bins, minlength=len(self.cost))
        starts = np.cumsum(counts) - counts
        out, out_size, out_cost = self._tried(order, starts[high], counts[high])
        back, back_size, back_cost = self._tried(order, starts[low], counts[low])
        gap = (self.cost[high] - self.cost[low])[:, None, None]
        moved = out_cost[:, :, None] - back_cost[:, None, :]
        grown = out_size[:, :, None] - back_size[:, None, :]
        fits = (grown <= self.room[low][:, None, None]) & (-grown <= self.room[high][:, None, None])
        fits &= (moved > 0) & (moved < gap) & (out >= 0)[:, :, None]
        miss = np.where(fits, np.abs(2 * moved - gap), gap).reshape(len(high), -1)
        best = miss.argmin(axis=1)
        pairs = np.flatnonzero(miss[np.arange(len(high)), best] < gap[:, 0, 0])
        if not len(pairs):
            return False
        at, to = np.divmod(best[pairs], back.shape[1])
        given, taken = out[pairs, at], back[pairs, to]
        self.bins[given] = low[pairs]
        self.bins[taken[taken >= 0]] = high[pairs][taken >= 0]
        for numbers, sign in ((high[pairs], 1), (low[pairs], -1)):
            self.cost[numbers] -= sign * moved[pairs, at, to]
            self.room[numbers] += sign * grown[pairs, at, to]
        return True

    def _tried(
        self, order: NDArray[np.int64], starts: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of each bin some samples, longest first, and then none (-1): positions, sizes, costs, int64[p, tried + 1]."""
        ranks = np.arange(_TRIED)
        picks = np.where(counts[:, None] > _TRIED, ranks * counts[:, None] // _TRIED, ranks)
        there = picks < counts[:, None]
        positions = np.where(there, order[np.where(there, starts[:, None] + picks, 0)], -1)
        positions = np.pad(positions, ((0, 0), (0, 1)), constant_values=-1)
        sizes, costs = (np.where(positions >= 0, values[positions], 0) for values in (self.items.size, self.items.cost))
        return positions, sizes, costs
