"""Filling bins to the brim, equally or evenly: what is left to do where the samples leave hardly any room.

Equal costs are out of reach in full bins. But bins that get samples of about the same lengths
cost about the same: the longest first, each goes into the emptiest bin, or into the cheapest. Doing so to
the end would leave a little room in every bin, and no place for the last samples; so these fill
up one bin after the other, each the one that it fits best.
"""

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.cheapest import place_cheapest
from dataserver.packing.placement import Items, Rule, place

# The part of all tokens that goes in last, of the shortest samples, by the best fit. No bin is emptier than
# the mean by more than about this part of it; the larger it is, the more likely do all samples fit.
_LAST = (32, 16, 8, 4)
_LAST_EVENLY = (256, 64, 16, 4)

MANY = 2**16
"""Of more samples than this not everything is tried, for the time that it takes."""


def place_equally_full(items: Items, *, capacity: int, bins_allowed: int) -> NDArray[np.int64]:
    """The bin of each item, int64[n]; a number from `bins_allowed` on says that these do not suffice this way."""
    for last in _LAST if len(items) <= MANY else _LAST[-2:]:
        bins = _place(items, items.size, capacity, bins_allowed, last)
        if bins.max() < bins_allowed:
            break
    return bins


def place_evenly(items: Items, *, capacity: int, bins_allowed: int) -> NDArray[np.int64]:
    """The same with bins of about equal cost, as far as they have room; `bins_allowed` is at most n."""
    bins = place_cheapest(items, capacity=capacity, opened=bins_allowed)
    for last in _LAST_EVENLY:
        if bins.max() < bins_allowed:
            break
        bins = _place(items, items.cost, capacity, bins_allowed, last)
    return bins


def _place(items: Items, weight: NDArray[np.int64], capacity: int, bins_allowed: int, last: int) -> NDArray[np.int64]:
    sums = np.cumsum(items.size)
    turn = int(np.searchsorted(sums, sums[-1] - sums[-1] // last, side="right"))
    bins = np.empty(len(items), dtype=np.int64)
    room = np.full(bins_allowed, capacity, dtype=np.int64)
    if turn:
        head = Items(index=items.index[:turn], size=items.size[:turn], cost=weight[:turn])
        bins[:turn] = place_cheapest(head, capacity=capacity, opened=bins_allowed)
        room = np.pad(room, (0, max(0, int(bins[:turn].max()) + 1 - bins_allowed)), constant_values=capacity)
        np.subtract.at(room, bins[:turn], head.size)
    if turn < len(items):
        tail = Items(index=items.index[turn:], size=items.size[turn:], cost=items.cost[turn:])
        bins[turn:] = place(tail, capacity=capacity, rule=Rule.BEST_FIT, opened=room, most=bins_allowed)
    return bins
