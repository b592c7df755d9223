"""The published way of balancing ranks: bins of equal cost, then equal sums of bins over ranks.

It looks at what a rank does in a whole step and not at when ranks meet; it stands here so that
`balanced` can be compared with it, and for parity. Three parts: split the costliest bins up
to a multiple of the ranks; differencing (Karmarkar and Karp 1982) with equal counts; swaps.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataserver.compiled import compiled
from dataserver.packing.heap import drop, push
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
    heap, key = np.empty_like(stops), np.zeros_like(stops)
    for number in range(opened):
        for at in range(starts[number], stops[number]):
            key[last - number] -= cost[order[at]]
        push(heap, number, key, last - number)
    count = opened
    while opened <= last and count:
        number = last - drop(heap, count, key)
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
        key[last - number], key[last - opened] = -kept_sum, -moved_sum
        push(heap, count, key, last - number)
        push(heap, count + 1, key, last - opened)
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
    heap, key = np.empty(rounds, dtype=np.int64), np.empty(rounds, dtype=np.int64)
    for part in range(rounds):
        for rank in range(ranks):
            sums[part, rank] = cost[order[part, rank]]
        key[part] = sums[part, -1] - sums[part, 0]
        push(heap, part, key, part)
    one = 0
    for count in range(rounds, 1, -1):
        one = drop(heap, count, key)
        other = drop(heap, count - 1, key)
        joined, begins, ends = sums[one] + sums[other][::-1], first[one].copy(), last[other][::-1].copy()
        for rank in range(ranks):
            follows[last[one, rank]] = first[other, ranks - 1 - rank]
        descending = np.argsort(-joined, kind="mergesort")
        for rank in range(ranks):
            at = descending[rank]
            sums[one, rank], first[one, rank], last[one, rank] = joined[at], begins[at], ends[at]
        key[one] = sums[one, -1] - sums[one, 0]
        push(heap, count - 2, key, one)
    found = np.empty((ranks, rounds), dtype=np.int64)
    for rank in range(ranks):
        number = first[one, rank]
        for at in range(rounds):
            found[rank, at] = number
            number = follows[number]
    return found


@compiled
def _swap(cost: NDArray[np.int64], ranks: NDArray[np.int64]) -> None:
    """Exchange a bin of the costliest rank for one of the cheapest while that brings the two together."""
    sums = np.zeros(len(ranks), dtype=np.int64)
    for rank in range(len(ranks)):
        for number in ranks[rank]:
            sums[rank] += cost[number]
    rounds = ranks.shape[1]
    for _ in range(min(_SWAPS, _COMPARED // rounds**2)):
        high, low = sums.argmax(), sums.argmin()
        gap = sums[high] - sums[low]
        least, best_at, best_to = gap, 0, 0
        for at in range(rounds):
            for to in range(rounds):
                moved = cost[ranks[high, at]] - cost[ranks[low, to]]
                if 0 < moved < gap and abs(moved - (gap - moved)) < least:
                    least, best_at, best_to = abs(moved - (gap - moved)), at, to
        if least == gap:
            return
        given, taken = ranks[high, best_at], ranks[low, best_to]
        ranks[high, best_at], ranks[low, best_to] = taken, given
        sums[high] -= cost[given] - cost[taken]
        sums[low] += cost[given] - cost[taken]
