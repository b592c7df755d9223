"""Evening out the bins of each round by exchanging samples between two of them.

In every round the costliest bin is paired with the cheapest, the second with the second to
last, and so on, and where that helps no more, each with another one. Each pair exchanges what
brings its costs closest together: one or two samples of the costlier bin for none, one or some
shorter ones of the other. Long samples cost more a
token than short ones, so this works also between two full bins. Both bins end between their
former costs, so no round gets longer; and no bin gets over its capacity.

All pairs of all rounds are looked at at once.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.placement import Items
from dataserver.packing.rounds import EVEN, Arrangement

# What a bin may give: so many neighbours in its descending order of lengths, from so many evenly spread places on.
_OUT_LENGTHS, _OUT_PLACES = (1, 2), 16
_BACK_LENGTHS, _BACK_PLACES = (1, 2, 3, 5, 8, 13), 12
_COMPARED_A_PAIR = (len(_OUT_LENGTHS) * _OUT_PLACES + 1) * (len(_BACK_LENGTHS) * _BACK_PLACES + 1)

# Bounds on the comparisons of one sweep, for memory, and of all, for time.
_COMPARED_A_SWEEP = 2**18
_COMPARED = 2**20

# So many other partners are tried where the first ones help no more.
_SHIFTS = 4


def refine(items: Items, arrangement: Arrangement, *, capacity: int, compared: int = _COMPARED) -> Arrangement:
    """The same bins in the same rounds with samples exchanged within rounds; never a longer duration.

    `compared` bounds the exchanges that are weighed, whatever the size of the step.
    """
    room = np.full(len(arrangement.cost), capacity, dtype=np.int64)
    np.subtract.at(room, arrangement.bins, items.size)
    state = _State(items, arrangement.bins.copy(), arrangement.cost.copy(), room)
    shift = 0
    while shift < _SHIFTS:
        high, low = _pairs(state.cost[arrangement.numbers], arrangement.numbers, shift)
        compared -= len(high) * _COMPARED_A_PAIR
        if not len(high) or compared < 0:
            break
        shift = 0 if state.exchange(high, low) else shift + 1
    return Arrangement(bins=state.bins, numbers=arrangement.numbers, cost=state.cost)


def _pairs(
    table: NDArray[np.int64], numbers: NDArray[np.int64], shift: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bins to exchange from and to, those first that are farthest above the mean of their round."""
    order = np.argsort(-table, axis=1, kind="stable")
    half = table.shape[1] // 2
    ranked, costs = np.take_along_axis(numbers, order, axis=1), np.take_along_axis(table, order, axis=1)
    high, low = ranked[:, :half], np.roll(ranked[:, ::-1][:, :half], -shift, axis=1)
    mean = table.sum(axis=1, keepdims=True) // table.shape[1]
    above = costs[:, :half] - mean
    chosen = np.flatnonzero((above * EVEN > mean).ravel())
    chosen = chosen[np.argsort(-above.ravel()[chosen], kind="stable")][: _COMPARED_A_SWEEP // _COMPARED_A_PAIR]
    return high.ravel()[chosen], low.ravel()[chosen]


@dataclass(frozen=True, slots=True)
class _Offers:
    """What each of p bins may give: stretches of `order`, with sizes and costs; int64[p, k] each, length 0 for none."""

    start: NDArray[np.int64]
    length: NDArray[np.int64]
    size: NDArray[np.int64]
    cost: NDArray[np.int64]

    def members(self, order: NDArray[np.int64], pairs: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
        """The items of offer `at[i]` of bin `pairs[i]`, one after the other."""
        starts, lengths = self.start[pairs, at], self.length[pairs, at]
        ends = np.cumsum(lengths)
        return order[np.arange(int(lengths.sum())) + np.repeat(starts - ends + lengths, lengths)]


@dataclass(frozen=True, slots=True)
class _State:
    """The bin of each item, and the cost and the room of each bin; changed in place."""

    items: Items
    bins: NDArray[np.int64]
    cost: NDArray[np.int64]
    room: NDArray[np.int64]

    def exchange(self, high: NDArray[np.int64], low: NDArray[np.int64]) -> bool:
        """Exchange samples of each `high` bin for some or none of its `low` bin; False when no pair can."""
        order = self._members(high, low)
        out = self._offers(order, high, _OUT_LENGTHS, _OUT_PLACES)
        back = self._offers(order, low, _BACK_LENGTHS, _BACK_PLACES)
        gap = (self.cost[high] - self.cost[low])[:, None, None]
        moved = out.cost[:, :, None] - back.cost[:, None, :]
        grown = out.size[:, :, None] - back.size[:, None, :]
        fits = (grown <= self.room[low][:, None, None]) & (-grown <= self.room[high][:, None, None])
        fits &= (moved > 0) & (moved < gap)
        miss = np.where(fits, np.abs(2 * moved - gap), gap).reshape(len(high), -1)
        best = miss.argmin(axis=1)
        pairs = np.flatnonzero(miss[np.arange(len(high)), best] < gap[:, 0, 0])
        if not len(pairs):
            return False
        at, to = np.divmod(best[pairs], back.cost.shape[1])
        given, taken = out.members(order, pairs, at), back.members(order, pairs, to)
        self.bins[given] = np.repeat(low[pairs], out.length[pairs, at])
        self.bins[taken] = np.repeat(high[pairs], back.length[pairs, to])
        for numbers, sign in ((high[pairs], 1), (low[pairs], -1)):
            self.cost[numbers] -= sign * moved[pairs, at, to]
            self.room[numbers] += sign * grown[pairs, at, to]
        return True

    def _members(self, high: NDArray[np.int64], low: NDArray[np.int64]) -> NDArray[np.int64]:
        """The items of these bins, bin after bin, the longest of each first."""
        asked = np.zeros(len(self.cost), dtype=np.bool_)
        asked[high] = asked[low] = True
        items = np.flatnonzero(asked[self.bins])
        return items[np.argsort(self.bins[items], kind="stable")]

    def _offers(
        self, order: NDArray[np.int64], numbers: NDArray[np.int64], lengths: tuple[int, ...], places: int
    ) -> _Offers:
        """Stretches of the members of the bins `numbers`, of `lengths` from evenly spread places on; and none."""
        counts = np.bincount(self.bins[order], minlength=len(self.cost))
        first, count = (np.cumsum(counts) - counts)[numbers][:, None], counts[numbers][:, None]
        steps = np.arange(places)
        place = np.where(count > places, steps * count // places, steps)
        start = np.concatenate([np.zeros_like(count), *[place] * len(lengths)], axis=1)
        length = np.repeat([0, *lengths], [1, *[places] * len(lengths)])
        length = np.where(start + length <= count, length, 0)
        start = np.where(length > 0, start + first, 0)
        sizes, costs = (
            np.concatenate(([0], np.cumsum(values[order]))) for values in (self.items.size, self.items.cost)
        )
        return _Offers(start, length, sizes[start + length] - sizes[start], costs[start + length] - costs[start])
