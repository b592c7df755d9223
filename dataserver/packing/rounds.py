"""Rounds: bins cut into groups of one bin a rank, and the bins of a round handed to ranks.

Ranks meet in every round, so a step lasts as long as the sum over its rounds of the costliest
bin. For given bins that sum is least when they are sorted by cost and cut in that order: the
R costliest bins then hide behind one another.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.placement import Bins

Rounds = tuple[tuple[NDArray[np.int64], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """`numbers[j][r]`: the bin that rank r gets in round j; None for an empty one added to fill the round.

    `duration`: the sum over rounds of the highest cost.
    """

    bins: Bins
    numbers: list[list[int | None]]
    duration: int


def in_bin_order(bins: Bins, *, rounds: int, dp_world_size: int) -> Arrangement:
    """Bins in the order of their numbers, round by round, rank by rank."""
    return _arrange(bins, list(bins.number), rounds, dp_world_size)


def by_cost(bins: Bins, *, rounds: int, dp_world_size: int) -> Arrangement:
    """The costliest bins first; ties by bin number."""
    order = sorted(bins.number, key=lambda number: (-bins.cost[number], number))
    return _arrange(bins, order, rounds, dp_world_size)


def even_out_ranks(arrangement: Arrangement) -> Arrangement:
    """Within each round, give the costliest bin to the rank with the least cost so far.

    The rounds keep their bins, so `duration` stays; what is evened out is each rank's sum.
    """
    sums = [0] * len(arrangement.numbers[0])
    numbers: list[list[int | None]] = []
    for group in arrangement.numbers:
        ranks = sorted(range(len(sums)), key=lambda rank: (sums[rank], rank))
        handed: list[int | None] = [None] * len(sums)
        costliest_first = sorted(group, key=lambda number: (-_cost(arrangement.bins, number), number is None, number))
        for rank, number in zip(ranks, costliest_first, strict=True):
            handed[rank] = number
            sums[rank] += _cost(arrangement.bins, number)
        numbers.append(handed)
    return Arrangement(bins=arrangement.bins, numbers=numbers, duration=arrangement.duration)


def index_arrays(arrangement: Arrangement) -> Rounds:
    """The members of each bin as int64[k], ascending."""
    empty = np.empty(0, dtype=np.int64)
    members = [np.array(sorted(bin_members), dtype=np.int64) for bin_members in arrangement.bins.members]
    return tuple(
        tuple(empty if number is None else members[number] for number in group) for group in arrangement.numbers
    )


def _arrange(bins: Bins, order: list[int], rounds: int, dp_world_size: int) -> Arrangement:
    filled: list[int | None] = [*order, *[None] * (rounds * dp_world_size - len(order))]
    numbers = [filled[at : at + dp_world_size] for at in range(0, len(filled), dp_world_size)]
    duration = sum(max(_cost(bins, number) for number in group) for group in numbers)
    return Arrangement(bins=bins, numbers=numbers, duration=duration)


def _cost(bins: Bins, number: int | None) -> int:
    return 0 if number is None else bins.cost[number]
