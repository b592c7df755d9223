"""Filling rounds to a level: what is packed around a sample that is costly by itself.

A sample that alone costs more than the mean bin sets how long its round lasts, whatever else is
in it. So the other bins of that round are filled up to the same cost, the longest samples
first: they cost no time there, and shorten the rounds that follow. When the costliest sample
left is below the mean of the bins left, an even level is in reach and all of those get it.
"""

from bisect import bisect_left

from dataserver.packing.placement import Bins, Items, Rule, place


def place_in_levels(items: Items, *, capacity: int, bins_allowed: int, dp_world_size: int) -> Bins:
    """Place all items; opens more than `bins_allowed` bins only where this way of filling needs them."""
    bins = Bins()
    left = _Left(items)
    while (bins_left := bins_allowed - len(bins)) > dp_world_size and left.costliest() * bins_left > left.cost:
        level = left.costliest()
        for _ in range(dp_world_size):
            _fill(bins, left, bins.open(capacity), level)
    rest = left.items()
    if rest.index:
        bins.extend(place(rest, capacity=capacity, rule=Rule.CHEAPEST, opened=min(bins_left, len(rest.index))))
    return bins


def _fill(bins: Bins, left: "_Left", number: int, level: int) -> None:
    """Put the longest samples that still fit into one bin, by its room and by the level."""
    while (at := left.longest(bins.room[number], level - bins.cost[number])) is not None:
        index, size, cost = left.take(at)
        bins.room[number] -= size
        bins.cost[number] += cost
        bins.members[number].append(index)


class _Left:
    """The items that are not placed yet; they stay in descending order."""

    def __init__(self, items: Items) -> None:
        self.cost = sum(items.cost)
        self._items = items
        self._ascending_size = [-size for size in items.size]
        self._ascending_cost = [-cost for cost in items.cost]
        # Union-find: next_[i] leads to the first item at or after i that is left.
        self._next = list(range(len(items.index) + 1))

    def costliest(self) -> int:
        """Cost of the costliest item left; 0 when none is."""
        at = self._find(0)
        return self._items.cost[at] if at < len(self._items.index) else 0

    def longest(self, room: int, budget: int) -> int | None:
        """Where the longest item stands that takes at most `room` and costs at most `budget`."""
        at = self._find(max(bisect_left(self._ascending_size, -room), bisect_left(self._ascending_cost, -budget)))
        return at if at < len(self._items.index) else None

    def take(self, at: int) -> tuple[int, int, int]:
        """Index, size and cost of the item at `at`, which is left no longer."""
        self._next[at] = at + 1
        self.cost -= self._items.cost[at]
        return self._items.index[at], self._items.size[at], self._items.cost[at]

    def items(self) -> Items:
        """All that is left."""
        kept = [at for at, following in enumerate(self._next[:-1]) if at == following]
        return Items(
            index=[self._items.index[at] for at in kept],
            size=[self._items.size[at] for at in kept],
            cost=[self._items.cost[at] for at in kept],
        )

    def _find(self, at: int) -> int:
        following = self._next
        while following[at] != at:
            following[at] = following[following[at]]
            at = following[at]
        return at
