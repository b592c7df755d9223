"""Rounds: bins cut into groups of one bin a rank, and the bins of a round handed to ranks.

Ranks meet in every round, so a step lasts as long as the sum over its rounds of the costliest
bin. For given bins that sum is least when they are sorted by cost and cut in that order: the
R costliest bins then hide behind one another.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dataserver.compiled import compiled
from dataserver.packing.heap import ascending
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
    numbers = np.empty_like(arrangement.numbers)
    _hand_out(arrangement.cost, arrangement.numbers, numbers)
    return Arrangement(bins=arrangement.bins, numbers=numbers, cost=arrangement.cost)


@compiled
def _hand_out(cost: NDArray[np.int64], rounds: NDArray[np.int64], handed: NDArray[np.int64]) -> None:
    sums, all_ranks, reverse = np.zeros(rounds.shape[1], dtype=np.int64), np.arange(rounds.shape[1]), -cost
    for number in range(len(rounds)):
        costliest_first = ascending(reverse, rounds[number])
        ranks = ascending(sums, all_ranks)
        for at in range(len(ranks)):
            handed[number, ranks[at]] = costliest_first[at]
            sums[ranks[at]] += cost[costliest_first[at]]


def index_arrays(items: Items, arrangement: Arrangement) -> Rounds:
    """The members of each bin as int64[k], ascending."""
    bins = np.empty(len(items), dtype=np.int64)
    bins[items.index] = arrangement.bins
    return rounds_of(bins, arrangement.numbers)


def rounds_of(bins: NDArray[np.int64], numbers: NDArray[np.int64]) -> Rounds:
    """The samples of each bin of `numbers` (int64[J, R]), where sample i is in bin `bins[i]`; ascending."""
    stops, samples = np.zeros(numbers.size + 1, dtype=np.int64), np.empty_like(bins)
    _gather(bins, numbers.ravel(), stops, samples)
    none = samples[:0]
    members = [samples[start:stop] if start < stop else none for start, stop in pairwise(stops.tolist())]
    return tuple(zip(*[iter(members)] * numbers.shape[1], strict=True))


@compiled
def _gather(
    bins: NDArray[np.int64], numbers: NDArray[np.int64], stops: NDArray[np.int64], samples: NDArray[np.int64]
) -> None:
    """Lay out samples bin after bin, in the order of `numbers`; `stops`: where each bin begins, and the last one ends.

    That order is the one in which they are read.
    """
    place = np.empty_like(numbers)
    for at in range(len(numbers)):
        place[numbers[at]] = at
    for number in bins:
        stops[place[number] + 1] += 1
    for at in range(len(numbers)):
        stops[at + 1] += stops[at]
    following = stops.copy()
    for sample in range(len(bins)):
        at = place[bins[sample]]
        samples[following[at]] = sample
        following[at] += 1
