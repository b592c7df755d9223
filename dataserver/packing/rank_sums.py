"""The published way of balancing ranks: bins of equal cost, then equal sums of bins over ranks.

It looks at what a rank does in a whole step and not at when ranks meet; it stands here so that
`balanced` can be compared with it, and for parity. Three parts: split the costliest bins up
to a multiple of the ranks; differencing (Karmarkar and Karp 1982) with equal counts; swaps.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataserver.compiled import compiled
from dataserver.packing.heap import ascending, drop, push
from dataserver.packing.placement import Items
from dataserver.packing.rounds import Arrangement, in_bin_order

# A swap helps less and less; the bounds keep steps of very many ranks or rounds from taking long.
_SWAPS: Final = 1024
_COMPARED: Final = 2**23


def split_costliest(items: Items, bins: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Split bins in two, the costliest first, of equal ones the last, until there are `count` or nothing to split."""
    opened = int(bins.max()) + 1
    if opened >= count:
        return bins
    bins = bins.copy()
    stops = np.zeros(count, dtype=np.int64)
    stops[:opened] = np.cumsum(np.bincount(bins))
    _split(items.cost, np.argsort(bins, kind="stable"), stops, opened, bins)
    return bins


@compiled
def _split(
    cost: NDArray[np.int64], order: NDArray[np.int64], stops: NDArray[np.int64], opened: int, bins: NDArray[np.int64]
) -> None:
    """`order`: items bin by bin; `stops`: where in it a bin's end, with place for the new bins."""
    last = len(stops) - 1
    starts = np.zeros_like(stops)
    for number in range(1, opened):
        starts[number] = stops[number - 1]
    # A heap has the lowest number first and the last bin is to be first, so it holds numbers from the last one back.
    keys, heap = np.empty_like(stops), np.empty_like(stops)
    for number in range(opened):
        total = 0
        for at in range(starts[number], stops[number]):
            total += cost[order[at]]
        push(keys, heap, number, -total, last - number)
    count = opened
    while opened <= last and count:
        number = last - drop(keys, heap, count)
        count -= 1
        start, stop = starts[number], stops[number]
        if stop - start < 2:
            continue
        moved = np.empty(stop - start, dtype=np.int64)
        kept_sum = moved_sum = moves = 0
        for at in range(start, stop):
            item = order[at]
            if moved_sum < kept_sum:
                moved_sum += cost[item]
                moved[moves] = item
                moves += 1
            else:
                kept_sum += cost[item]
                order[at - moves] = item
        for at in range(moves):
            order[stop - moves + at] = moved[at]
            bins[moved[at]] = opened
        stops[number] = starts[opened] = stop - moves
        stops[opened] = stop
        push(keys, heap, count, -kept_sum, last - number)
        push(keys, heap, count + 1, -moved_sum, last - opened)
        count += 2
        opened += 1


def by_rank_sums(items: Items, bins: NDArray[np.int64], *, rounds: int, dp_world_size: int) -> Arrangement:
    """Ranks with about equal sums, `rounds` bins each; a rank's costliest bin comes first."""
    given = in_bin_order(items, bins, rounds=rounds, dp_world_size=dp_world_size)
    order = np.argsort(-given.cost, kind="stable").reshape(rounds, dp_world_size)
    ranks = _differencing(given.cost, order)
    _swap(given.cost, ranks)
    by_cost = np.lexsort((ranks, -given.cost[ranks]), axis=1)
    numbers = np.ascontiguousarray(np.take_along_axis(ranks, by_cost, axis=1).T)
    return Arrangement(bins=bins, numbers=numbers, cost=given.cost)


@compiled
def _differencing(cost: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bins of each rank, int64[R, J]: the two parts whose sums spread most are joined until one is left.

    `order`: int64[J, R], the bins by descending cost; each round of them is a part to begin with. A part has a sum
    for each rank, in descending order, and the bins of each as a list: `first` and `last` of it, and what `follows`.
    """
    rounds, ranks = order.shape
    sums = np.empty((rounds, ranks), dtype=np.int64)
    first, last, follows = order.copy(), order.copy(), np.full(rounds * ranks, -1, dtype=np.int64)
    keys, heap = np.empty(rounds, dtype=np.int64), np.empty(rounds, dtype=np.int64)
    for part in range(rounds):
        for rank in range(ranks):
            sums[part, rank] = cost[order[part, rank]]
        push(keys, heap, part, sums[part, -1] - sums[part, 0], part)
    one, all_ranks = 0, np.arange(ranks)
    for count in range(rounds, 1, -1):
        one = drop(keys, heap, count)
        other = drop(keys, heap, count - 1)
        joined, begins, ends = sums[one] + sums[other][::-1], first[one].copy(), last[other][::-1].copy()
        for rank in range(ranks):
            follows[last[one, rank]] = first[other, ranks - 1 - rank]
        descending = ascending(-joined, all_ranks)
        for rank in range(ranks):
            at = descending[rank]
            sums[one, rank], first[one, rank], last[one, rank] = joined[at], begins[at], ends[at]
        push(keys, heap, count - 2, sums[one, -1] - sums[one, 0], one)
    found = np.empty((ranks, rounds), dtype=np.int64)
    for rank in range(ranks):
        number = first[one, rank]
        for at in range(rounds):
            found[rank, at] = number
            number = follows[number]
    return found


@compiled
def _swap(cost: NDArray[np.int64], ranks: NDArray[np.int64]) -> None:
    """Exchange two bins of two ranks for as long as that helps, each time where it helps most.

    It helps where the highest sum falls, or stays and the lowest rises: so one of the two is the costliest rank or the
    cheapest. Of equally good ones that of the lowest ranks is made, and of these that of the lowest places.
    """
    count, rounds = ranks.shape
    sums, all_ranks = np.zeros(count, dtype=np.int64), np.arange(count)
    for rank in range(count):
        for number in ranks[rank]:
            sums[rank] += cost[number]
    for _ in range(min(_SWAPS, _COMPARED // (2 * count * rounds**2))):
        order = ascending(sums, all_ranks)
        cheapest, costliest = order[0], order[-1]
        best = (sums[costliest], sums[costliest] - sums[cheapest], -1, -1, -1, -1)
        for partner in range(count):
            for end in (costliest, cheapest):
                if partner != end:
                    best = _best_exchange(cost, ranks, sums, order, min(end, partner), max(end, partner), best)
        _, _, one, other, at, to = best
        if one < 0:
            return
        given, taken = ranks[one, at], ranks[other, to]
        ranks[one, at], ranks[other, to] = taken, given
        sums[one] -= cost[given] - cost[taken]
        sums[other] += cost[given] - cost[taken]


@compiled
def _best_exchange(  # noqa: PLR0917  # compiled functions have no keyword-only arguments
    cost: NDArray[np.int64],
    ranks: NDArray[np.int64],
    sums: NDArray[np.int64],
    order: NDArray[np.int64],
    one: int,
    other: int,
    best: tuple[int, int, int, int, int, int],
) -> tuple[int, int, int, int, int, int]:
    """`best` or a better one between two ranks: the highest sum and the spread that it leaves, ranks, and places."""
    # Of the others; where there are none, what changes nothing.
    highest, lowest = 0, sums[order[-1]]
    for rank in order[::-1]:
        if rank not in (one, other):
            highest = sums[rank]
            break
    for rank in order:
        if rank not in (one, other):
            lowest = sums[rank]
            break
    for at in range(ranks.shape[1]):
        for to in range(ranks.shape[1]):
            moved = cost[ranks[one, at]] - cost[ranks[other, to]]
            high = max(highest, sums[one] - moved, sums[other] + moved)
            if high <= best[0]:
                low = min(lowest, sums[one] - moved, sums[other] + moved)
                found = (high, high - low, one, other, at, to)
                if found < best:  # noqa: PLR1730 - Numba has no `min` of tuples
                    best = found
    return best
