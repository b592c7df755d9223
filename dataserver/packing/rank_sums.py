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

# A swap helps less and less; the bounds keep steps of very many ranks or rounds from taking long.
_SWAPS = 1024
_COMPARED = 2**23


def split_costliest(items: Items, bins: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Split bins in two, the costliest first, of equal ones the last, until there are `count` or nothing to split."""
    bins = bins.copy()
    number = int(bins.max()) + 1
    cost = np.zeros(number, dtype=np.int64)
    np.add.at(cost, bins, items.cost)
    by_bin = np.argsort(bins, kind="stable")
    members = np.split(by_bin, np.cumsum(np.bincount(bins))[:-1])
    costliest = [(-price, -bin_) for bin_, price in enumerate(cost.tolist())]
    heapify(costliest)
    while number < count and costliest:
        bin_ = -heappop(costliest)[1]
        if len(members[bin_]) < 2:
            continue
        sums = [0, 0]
        halves: tuple[list[int], list[int]] = ([], [])
        for member, price in zip(members[bin_].tolist(), items.cost[members[bin_]].tolist(), strict=True):
            half = int(sums[1] < sums[0])
            sums[half] += price
            halves[half].append(member)
        bins[halves[1]] = number
        members[bin_] = np.array(halves[0])
        members.append(np.array(halves[1]))
        heappush(costliest, (-sums[0], -bin_))
        heappush(costliest, (-sums[1], -number))
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
            (total + other, _joined(mine, its))
            for total, other, mine, its in zip(sums, others[::-1], members, other_members[::-1], strict=True)
        ]
        joined.sort(key=lambda rank: -rank[0])
        sums, members = [total for total, _ in joined], [mine for _, mine in joined]
        heappush(parts, (sums[-1] - sums[0], number, sums, members))
    return parts[0][3]


def _joined(some: list[int], others: list[int]) -> list[int]:
    """The longer of the two lists, extended by the shorter: so all joins together copy little."""
    longer, shorter = (some, others) if len(some) >= len(others) else (others, some)
    longer.extend(shorter)
    return longer


def _swap(ranks: list[list[int]], cost: NDArray[np.int64]) -> None:
    """Exchange a bin of the costliest rank for one of the cheapest while that brings the two together."""
    sums = np.array([cost[rank].sum() for rank in ranks])
    for _ in range(min(_SWAPS, _COMPARED // len(ranks[0]) ** 2)):
        high, low = int(sums.argmax()), int(sums.argmin())
        gap = sums[high] - sums[low]
        moved = cost[ranks[high]][:, None] - cost[ranks[low]][None, :]
        miss = np.where((moved > 0) & (moved < gap), np.abs(2 * moved - gap), gap)
        if miss.min() >= gap:
            return
        at, to = np.unravel_index(int(miss.argmin()), miss.shape)
        ranks[high][at], ranks[low][to] = ranks[low][to], ranks[high][at]
        sums[high] -= moved[at, to]
        sums[low] += moved[at, to]
