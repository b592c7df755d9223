"""Filling bins to the brim, equally or evenly: what is left to do where the samples leave hardly any room.

Equal costs are out of reach in full bins. But bins that get samples of about the same lengths
cost about the same: the longest first, each goes into the emptiest bin, or into the cheapest. Doing so to
the end would leave a little room in every bin, and no place for the last samples; so these fill
up one bin after the other, each the one that it fits best.
"""

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.placement import Items, Rule, place

# The part of all tokens that goes in last, of the shortest samples, by the best fit. No bin is emptier than
# the mean by more than about this part of it; the larger it is, the more likely do all samples fit.
_LAST = (32, 16, 8, 4)
_LAST_EVENLY = (256, 64, 16, 4)


def place_equally_full(items: Items, *, capacity: int, bins_allowed: int) -> NDArray[np.int64]:
    """The bin of each item, int64[n]; a number from `bins_allowed` on says that these do not suffice this way."""
    return _filled(items, items.size, capacity, bins_allowed, _LAST)


def place_evenly(items: Items, *, capacity: int, bins_allowed: int) -> NDArray[np.int64]:
    """The same with bins of about equal cost, as far as they have room; `bins_allowed` is at most n."""
    bins = place_cheapest(items, capacity=capacity, opened=bins_allowed)
    if bins.max() < bins_allowed:
        return bins
    return _filled(items, items.cost, capacity, bins_allowed, _LAST_EVENLY)


def place_cheapest(items: Items, *, capacity: int, opened: int) -> NDArray[np.int64]:
    """Each item into the cheapest bin with room, int64[n]; `opened` stand ready, another opens when none has room."""
    return place(items, capacity=capacity, rule=Rule.CHEAPEST, opened=np.full(opened, capacity, dtype=np.int64))


def _filled(
    items: Items, weight: NDArray[np.int64], capacity: int, bins_allowed: int, parts: tuple[int, ...]
) -> NDArray[np.int64]:
    """The least of the `parts` in last that makes all fit, else the largest."""
    sums = np.cumsum(items.size)
    turns = [int(np.searchsorted(sums, sums[-1] - sums[-1] // part, side="right")) for part in parts]
    # Each head is the beginning of the largest one, and placed as that is.
    head = Items(index=items.index[: turns[0]], size=items.size[: turns[0]], cost=weight[: turns[0]])
    placed = place_cheapest(head, capacity=capacity, opened=bins_allowed) if turns[0] else items.index[:0]
    for turn in turns:
        bins = np.concatenate((placed[:turn], np.empty(len(items) - turn, dtype=np.int64)))
        room = np.full(max(bins_allowed, int(placed[:turn].max(initial=-1)) + 1), capacity, dtype=np.int64)
        np.subtract.at(room, placed[:turn], items.size[:turn])
        if turn < len(items):
            tail = Items(index=items.index[turn:], size=items.size[turn:], cost=items.cost[turn:])
            bins[turn:] = place(tail, capacity=capacity, rule=Rule.BEST_FIT, opened=room, most=bins_allowed)
        if bins.max() < bins_allowed:
            break
    return bins
