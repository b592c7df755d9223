"""The published way of balancing ranks: bins of equal cost, then equal sums of bins over ranks.

It looks at what a rank does in a whole step and not at when ranks meet; it stands here so that
`balanced` can be compared with it, and for parity. Three parts: split the costliest bins up
to a multiple of the ranks; differencing (Karmarkar and Karp 1982) with equal counts; swaps.
"""

from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.placement import Items
from dataserver.packing.rounds import Arrangement, in_bin_order

# A swap helps less and less; the bound keeps adversarial steps from taking long.
_SWAPS_A_RANK = 4


def split_costliest(items: Items, bins: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Split bins in two, the costliest first, until there are `count`, or until all hold one sample."""
    bins = bins.copy()
    number = int(bins.max()) + 1
    cost = np.zeros(number, dtype=np.int64)
    np.add.at(cost, bins, items.cost)
    costliest = [(-int(price), bin_) for bin_, price in enumerate(cost)]
    heapify(costliest)
    while number < count and costliest:
        bin_ = heappop(costliest)[1]
        members = np.flatnonzero(bins == bin_)
        if len(members) < 2:
            continue
        sums = [0, 0]
        for member, price in zip(members.tolist(), items.cost[members].tolist(), strict=True):
            half = int(sums[1] < sums[0])
            sums[half] += price
            bins[member] = number if half else bin_
        heappush(costliest, (-sums[0], bin_))
        heappush(costliest, (-sums[1], number))
        number += 1
    return bins


def by_rank_sums(items: Items, bins: NDArray[np.int64], *, rounds: int, dp_world_size: int) -> Arrangement:
    """Ranks with about equal sums, `rounds` bins each; a rank's costliest bin comes first."""
    given = in_bin_order(items, bins, rounds=rounds, dp_world_size=dp_world_size)
    ranks = _differencing(given.cost, rounds, dp_world_size)
    _swap(ranks, given.cost)
    numbers = np.array([sorted(rank, key=lambda bin_: (-int(given.cost[bin_]), bin_)) for rank in ranks]).T
    return Arrangement(bins=bins, numbers=np.ascontiguousarray(numbers), cost=given.cost)


def _differencing(cost: NDArray[np.int64], rounds: int, ranks: int) -> list[list[int]]:
    """The bins of each rank: the two parts whose sums spread most are joined, high to low, until one is left."""
    order = np.argsort(-cost, kind="stable").reshape(rounds, ranks)
    parts = []
    for number, group in enumerate(order.tolist()):
        sums = [int(cost[bin_]) for bin_ in group]
        parts.append((sums[-1] - sums[0], number, sums, [[bin_] for bin_ in group]))
    heapify(parts)
    while len(parts) > 1:
        _, number, sums, members = heappop(parts)
        _, _, others, other_members = heappop(parts)
        joined = [
            (total + other, [*mine, *its])
            for total, other, mine, its in zip(sums, others[::-1], members, other_members[::-1], strict=True)
        ]
        joined.sort(key=lambda rank: -rank[0])
        sums, members = [total for total, _ in joined], [mine for _, mine in joined]
        heappush(parts, (sums[-1] - sums[0], number, sums, members))
    return parts[0][3]


def _swap(ranks: list[list[int]], cost: NDArray[np.int64]) -> None:
    """Exchange a bin of the costliest rank for one of the cheapest while that brings the two together."""
    sums = [int(cost[rank].sum()) for rank in ranks]
    for _ in range(_SWAPS_A_RANK * len(ranks)):
        high, low = sums.index(max(sums)), sums.index(min(sums))
        gap = sums[high] - sums[low]
        moved = cost[ranks[high]][:, None] - cost[ranks[low]][None, :]
        miss = np.where((moved > 0) & (moved < gap), np.abs(2 * moved - gap), gap)
        if miss.min() >= gap:
            return
        at, to = np.unravel_index(int(miss.argmin()), miss.shape)
        ranks[high][at], ranks[low][to] = ranks[low][to], ranks[high][at]
        sums[high] -= int(moved[at, to])
        sums[low] += int(moved[at, to])
