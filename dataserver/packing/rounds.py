"""Rounds: bins cut into groups of one bin a rank, and the bins of a round handed to ranks.

Ranks meet in every round, so a step lasts as long as the sum over its rounds of the costliest
bin. For given bins that sum is least when they are sorted by cost and cut in that order: the
R costliest bins then hide behind one another.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.placement import Items

EVEN = 1024
"""What is within this part of the best possible is not worth more work."""

LIGHT = 32
"""A bin is light when it is below the mean by more than this part of it."""

Rounds = tuple[tuple[NDArray[np.int64], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Items in bins, and bins in rounds.

    `bins`: int64[n], the bin of each item. `numbers`: int64[J, R], the bin that rank r gets in
    round j; bins beyond those in `bins` are empty. `cost`: int64[J * R], the cost of each bin.
    """

    bins: NDArray[np.int64]
    numbers: NDArray[np.int64]
    cost: NDArray[np.int64]

    @property
    def table(self) -> NDArray[np.int64]:
        """Cost of the bin of rank r in round j, int64[J, R]."""
        return self.cost[self.numbers]

    @property
    def duration(self) -> int:
        """The sum over rounds of the highest cost."""
        return int(self.table.max(axis=1).sum())

    def is_even(self, part: int) -> bool:
        """Whether it lasts longer than any arrangement of the same samples must by at most one in `part`."""
        ranks = self.numbers.shape[1]
        mean = int(self.cost.sum()) // ranks
        return bool((self.duration - mean) * part <= mean)


def in_bin_order(items: Items, bins: NDArray[np.int64], *, rounds: int, dp_world_size: int) -> Arrangement:
    """Bins in the order of their numbers, round by round, rank by rank."""
    count = rounds * dp_world_size
    cost = np.zeros(count, dtype=np.int64)
    np.add.at(cost, bins, items.cost)
    return Arrangement(bins=bins, numbers=np.arange(count).reshape(rounds, dp_world_size), cost=cost)


def by_cost(items: Items, bins: NDArray[np.int64], *, rounds: int, dp_world_size: int) -> Arrangement:
    """The costliest bins first; ties by bin number."""
    given = in_bin_order(items, bins, rounds=rounds, dp_world_size=dp_world_size)
    order = np.argsort(-given.cost, kind="stable")
    return Arrangement(bins=bins, numbers=order.reshape(rounds, dp_world_size), cost=given.cost)


def spread_light_bins(items: Items, arrangement: Arrangement) -> Arrangement:
    """As many bins of clearly less than the mean size to each round, the others by cost as they were.

    Sorted by cost they would all meet in the last round, which then had far fewer tokens than the others.
    """
    rounds, ranks = arrangement.numbers.shape
    size = np.zeros(rounds * ranks, dtype=np.int64)
    np.add.at(size, arrangement.bins, items.size)
    order = arrangement.numbers.ravel()
    is_light = size[order] * len(size) * LIGHT < int(size.sum()) * (LIGHT - 1)
    light, others = order[is_light], order[~is_light]
    dealt = np.array_split(light[::-1], rounds)[::-1]
    stops = np.cumsum([ranks - len(bins) for bins in dealt])
    numbers = [np.concatenate(group) for group in zip(np.split(others, stops[:-1]), dealt, strict=True)]
    return Arrangement(bins=arrangement.bins, numbers=np.stack(numbers), cost=arrangement.cost)


def even_out_ranks(arrangement: Arrangement) -> Arrangement:
    """Within each round, give the costliest bin to the rank with the least cost so far.

    The rounds keep their bins, so `duration` stays; what is evened out is each rank's sum.
    """
    sums = np.zeros(arrangement.numbers.shape[1], dtype=np.int64)
    numbers = np.empty_like(arrangement.numbers)
    for handed, group in zip(numbers, arrangement.numbers, strict=True):
        ranks = np.argsort(sums, kind="stable")
        costliest_first = group[np.lexsort((group, -arrangement.cost[group]))]
        handed[ranks] = costliest_first
        sums[ranks] += arrangement.cost[costliest_first]
    return Arrangement(bins=arrangement.bins, numbers=numbers, cost=arrangement.cost)


def index_arrays(items: Items, arrangement: Arrangement) -> Rounds:
    """The members of each bin as int64[k], ascending."""
    bins = np.empty(len(items), dtype=np.int64)
    bins[items.index] = arrangement.bins
    return rounds_of(bins, arrangement.numbers)


def rounds_of(bins: NDArray[np.int64], numbers: NDArray[np.int64]) -> Rounds:
    """The samples of each bin of `numbers` (int64[J, R]), where sample i is in bin `bins[i]`; ascending."""
    order = np.argsort(bins, kind="stable")
    stops = np.cumsum(np.bincount(bins, minlength=numbers.size)).tolist()
    members = [order[start:stop] for start, stop in zip([0, *stops[:-1]], stops, strict=True)]
    return tuple(tuple(members[number] for number in group) for group in numbers.tolist())
