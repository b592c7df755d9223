"""Filling rounds to a level: what is packed around a sample that is costly by itself.

A sample that alone costs more than the mean bin sets how long its round lasts, whatever else is
in it. So the other bins of that round are filled up to the same cost, the longest samples
first: they cost no time there, and shorten the rounds that follow. When the costliest sample
left is below the mean of the bins left, an even level is in reach and all of those get it.
"""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.cheapest import place_cheapest
from dataserver.packing.placement import Items


def place_in_levels(items: Items, *, capacity: int, bins_allowed: int, dp_world_size: int) -> NDArray[np.int64]:
    """The bin of each item, int64[n]; more than `bins_allowed` bins only where this way of filling needs them."""
    bins = np.empty(len(items), dtype=np.int64)
    left = _Left(items)
    opened = 0
    while (bins_left := bins_allowed - opened) > dp_world_size and left.costliest() * bins_left > left.cost:
        level = left.costliest()
        for number in range(opened, opened + dp_world_size):
            bins[left.fill(capacity, level)] = number
        opened += dp_world_size
    rest = np.array(left.positions(), dtype=np.int64)
    if len(rest):
        kept = Items(index=items.index[rest], size=items.size[rest], cost=items.cost[rest])
        bins[rest] = opened + place_cheapest(kept, capacity=capacity, opened=min(bins_left, len(rest)))
    return bins


class _Left:
    """The items that are not placed yet, by their positions in descending order."""

    def __init__(self, items: Items) -> None:
        self.cost = int(items.cost.sum())
        self._size, self._cost = items.size.tolist(), items.cost.tolist()
        self._ascending_size, self._ascending_cost = (-items.size).tolist(), (-items.cost).tolist()
        # Union-find: next_[i] leads to the first item at or after i that is left.
        self._next = list(range(len(items) + 1))

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
