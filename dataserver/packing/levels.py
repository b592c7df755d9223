"""Filling rounds to a level: what is packed around a sample that is costly by itself.

A sample that alone costs more than the mean bin sets how long its round lasts, whatever else is
in it. So the other bins of that round are filled up to the same cost, the longest samples
first: they cost no time there, and shorten the rounds that follow. When the costliest sample
left is below the mean of the bins left, an even level is in reach and all of those get it.

Bins that reach the level before they are full waste room, and there is only so much to waste: where
a round would need too much of it, its level is raised, and where that does not suffice there is none.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataserver.compiled import compiled
from dataserver.packing.full import place_evenly
from dataserver.packing.placement import Items

# A round's level, as multiples of its costliest sample in sixteenths: the lowest that room is left for.
_LEVELS: Final = (16, 17, 18, 20, 22, 24, 28)

_LEFT: Final = -1


def place_in_levels(
    items: Items, *, capacity: int, rounds: int, dp_world_size: int, waste_part: int = 1
) -> NDArray[np.int64]:
    """The bin of each item, int64[n]; a number beyond `rounds` says that these do not suffice this way.

    No round that has a level wastes more than one in `waste_part` of its room.
    """
    bins = np.full(len(items), _LEFT, dtype=np.int64)
    opened = _fill_rounds(items.size, items.cost, capacity, rounds, dp_world_size, waste_part, bins)
    rest = np.flatnonzero(bins == _LEFT)
    if len(rest):
        kept = Items(index=items.index[rest], size=items.size[rest], cost=items.cost[rest])
        bins_left = rounds * dp_world_size - opened
        bins[rest] = opened + place_evenly(kept, capacity=capacity, bins_allowed=min(bins_left, len(rest)))
    return bins


@compiled
def _fill_rounds(  # noqa: PLR0917  # compiled functions have no keyword-only arguments
    size: NDArray[np.int64],
    cost: NDArray[np.int64],
    capacity: int,
    rounds: int,
    ranks: int,
    waste_part: int,
    bins: NDArray[np.int64],
) -> int:
    """Give items to the rounds that have a level; returns how many bins these are."""
    bins_left, opened = rounds * ranks, 0
    size_left, cost_left = size.sum(), cost.sum()
    to_waste = bins_left * capacity - size_left
    following = np.arange(len(size) + 1)
    while bins_left > ranks and size_left > 0:
        costliest = cost[_find(following, 0)]
        if costliest <= cost_left // bins_left:
            break
        for level in _LEVELS:
            budget = costliest // 16 * level + costliest % 16 * level // 16
            after = following.copy()
            used = spent = 0
            for number in range(opened, opened + ranks):
                more, dearer = _fill(size, cost, after, capacity, budget, number, bins)
                used += more
                spent += dearer
            wasted = ranks * capacity - used
            if wasted <= min(to_waste, ranks * capacity // waste_part):
                break
            for at in range(len(bins)):
                if bins[at] >= opened:
                    bins[at] = _LEFT
        else:
            break
        following = after
        opened += ranks
        bins_left -= ranks
        size_left -= used
        cost_left -= spent
        to_waste -= wasted
    return opened


@compiled
def _fill(  # noqa: PLR0917
    size: NDArray[np.int64],
    cost: NDArray[np.int64],
    following: NDArray[np.int64],
    room: int,
    budget: int,
    number: int,
    bins: NDArray[np.int64],
) -> tuple[int, int]:
    """Give bin `number` the longest items left that fit into `room` and `budget`; returns what it takes of both."""
    used = spent = 0
    while True:
        at = _find(following, max(_first_within(size, room - used), _first_within(cost, budget - spent)))
        if at == len(size):
            return used, spent
        following[at] = at + 1
        used += size[at]
        spent += cost[at]
        bins[at] = number


@compiled
def _first_within(descending: NDArray[np.int64], most: int) -> int:
    """Where the first value of at most `most` stands; n for none."""
    low, high = 0, len(descending)
    while low < high:
        middle = (low + high) >> 1
        if descending[middle] > most:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _find(following: NDArray[np.int64], at: int) -> int:
    """Union-find: `following[i]` leads to the first item at or after i that is left."""
    while following[at] != at:
        following[at] = following[following[at]]
        at = int(following[at])
    return at
