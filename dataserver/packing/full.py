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
    turns = _turns(items, _LAST)
    size = items.size[: turns[0]]
    head = Items(index=items.index[: turns[0]], size=size, cost=size)
    placed = place_cheapest(head, capacity=capacity, opened=bins_allowed) if turns[0] else items.index[:0]
    return _filled_up(items, placed, turns, capacity=capacity, bins_allowed=bins_allowed)


def place_evenly(items: Items, *, capacity: int, bins_allowed: int) -> NDArray[np.int64]:
    """The same with bins of about equal cost, as far as they have room; `bins_allowed` is at most n."""
    bins = place_cheapest(items, capacity=capacity, opened=bins_allowed)
    if bins.max() < bins_allowed:
        return bins
    return _filled_up(items, bins, _turns(items, _LAST_EVENLY), capacity=capacity, bins_allowed=bins_allowed)


def place_cheapest(items: Items, *, capacity: int, opened: int, most: int | None = None) -> NDArray[np.int64]:
    """Each item into the cheapest bin with room, int64[n]; `opened` stand ready, another opens when none has room.

    Where more than `most` bins are needed, the items from there on are all given the number `most`.
    """
    # The longest ones open a bin each: those are the cheapest there are.
    bins = np.arange(len(items))
    if opened < len(items):
        rest = Items(index=items.index[opened:], size=items.size[opened:], cost=items.cost[opened:])
        room, spent = capacity - items.size[:opened], items.cost[:opened]
        bins[opened:] = place(rest, capacity=capacity, rule=Rule.CHEAPEST, opened=room, spent=spent, most=most)
    return bins


def _turns(items: Items, parts: tuple[int, ...]) -> list[int]:
    """Where those that go in last begin, for each of the `parts`."""
    sums = np.cumsum(items.size)
    return [int(np.searchsorted(sums, sums[-1] - sums[-1] // part, side="right")) for part in parts]


def _filled_up(
    items: Items, placed: NDArray[np.int64], turns: list[int], *, capacity: int, bins_allowed: int
) -> NDArray[np.int64]:
    """Items up to a turn as they are `placed` one after the other, and the others by the best fit.

    The first of the `turns` that makes all fit, else the last.
    """
    for turn in turns:
        opened = int(placed[:turn].max(initial=-1)) + 1
        if opened > bins_allowed and turn != turns[-1]:
            continue
        bins = np.concatenate((placed[:turn], np.empty(len(items) - turn, dtype=np.int64)))
        room = np.full(max(bins_allowed, opened), capacity, dtype=np.int64)
        np.subtract.at(room, placed[:turn], items.size[:turn])
        if turn < len(items):
            tail = Items(index=items.index[turn:], size=items.size[turn:], cost=items.cost[turn:])
            bins[turn:] = place(tail, capacity=capacity, rule=Rule.BEST_FIT, opened=room, most=bins_allowed)
        if bins.max() < bins_allowed:
            break
    return bins
