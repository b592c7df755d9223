"""Filling rounds to a level: what is packed around a sample that is costly by itself.

A sample that alone costs more than the mean bin sets how long its round lasts, whatever else is
in it. So the other bins of that round are filled up to the same cost, the longest samples
first: they cost no time there, and shorten the rounds that follow. When the costliest sample
left is below the mean of the bins left, an even level is in reach and all of those get it.

Bins that reach the level before they are full waste room, and there is only so much to waste: where
a round would need too much of it, its level is raised, and where that does not suffice there is none.
"""

from bisect import bisect_left
from copy import copy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.full import place_evenly
from dataserver.packing.placement import Items

# A round's level, as multiples of its costliest sample in sixteenths: the lowest that room is left for.
_LEVELS = (16, 17, 18, 20, 22, 24, 28)


def place_in_levels(
    items: Items, *, capacity: int, rounds: int, dp_world_size: int, waste_part: int = 1
) -> NDArray[np.int64]:
    """The bin of each item, int64[n]; a number beyond `rounds` says that these do not suffice this way.

    No round that has a level wastes more than one in `waste_part` of its room.
    """
    bins_allowed = rounds * dp_world_size
    bins = np.empty(len(items), dtype=np.int64)
    left = _Left(items)
    opened = 0
    to_waste = bins_allowed * capacity - int(items.size.sum())
    while (bins_left := bins_allowed - opened) > dp_world_size and left.costliest() * bins_left > left.cost:
        for level in _LEVELS:
            after = left.copy()
            filled = [after.fill(capacity, left.costliest() * level // 16) for _ in range(dp_world_size)]
            wasted = dp_world_size * capacity - left.size + after.size
            if wasted <= min(to_waste, dp_world_size * capacity // waste_part):
                break
        else:
            break
        for number, positions in enumerate(filled, opened):
            bins[positions] = number
        left, opened, to_waste = after, opened + dp_world_size, to_waste - wasted
    rest = np.array(left.positions(), dtype=np.int64)
    if len(rest):
        kept = Items(index=items.index[rest], size=items.size[rest], cost=items.cost[rest])
        bins[rest] = opened + place_evenly(kept, capacity=capacity, bins_allowed=min(bins_left, len(rest)))
    return bins


class _Left:
    """The items that are not placed yet, by their positions in descending order; `size` and `cost` of all of them."""

    def __init__(self, items: Items) -> None:
        self.size, self.cost = int(items.size.sum()), int(items.cost.sum())
        self._size, self._cost = items.size.tolist(), items.cost.tolist()
        self._ascending_size, self._ascending_cost = (-items.size).tolist(), (-items.cost).tolist()
        # Union-find: next_[i] leads to the first item at or after i that is left.
        self._next = list(range(len(items) + 1))

    def copy(self) -> Self:
        """One that changes apart from this one."""
        other = copy(self)
        other._next = self._next.copy()
        return other

    def costliest(self) -> int:
        """Cost of the costliest item left; 0 when none is."""
        at = self._find(0)
        return self._cost[at] if at < len(self._cost) else 0

    def fill(self, room: int, budget: int) -> list[int]:
        """Take the longest items that still fit into `room` and `budget`; returns their positions."""
        taken = []
        while (at := self._longest(room, budget)) < len(self._size):
            self._next[at] = at + 1
            room -= self._size[at]
            budget -= self._cost[at]
            taken.append(at)
        self.size -= sum(self._size[at] for at in taken)
        self.cost -= sum(self._cost[at] for at in taken)
        return taken

    def positions(self) -> list[int]:
        """All that is left."""
        return [at for at, following in enumerate(self._next[:-1]) if at == following]

    def _longest(self, room: int, budget: int) -> int:
        """Where the longest item stands that takes at most `room` and costs at most `budget`; n for none."""
        return self._find(max(bisect_left(self._ascending_size, -room), bisect_left(self._ascending_cost, -budget)))

    def _find(self, at: int) -> int:
        following = self._next
        while following[at] != at:
            following[at] = following[following[at]]
            at = following[at]
        return at
