"""How long first-fit lasts, told from its first rounds.

First-fit-decreasing can be had bin by bin: each takes the longest sample left that fits, again and
again. So its first rounds can be had without the others, and since no round lasts shorter than its
mean, they are often enough to tell that the whole lasts longer than something nearly even.
"""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.placement import Items

# Beyond this part of the samples, placing all of them is as quick.
_LOOKED_AT = 8


def first_fit_lasts(items: Items, *, capacity: int, dp_world_size: int, at_least: int) -> bool:
    """Whether first-fit-decreasing, rounds in the order in which its bins open, lasts `at_least` so long.

    False also where that does not show early.
    """
    ascending = (-items.size).tolist()
    taken: dict[int, int] = {}  # a position -> one at or before the next that is left
    rest, lasted = int(items.cost.sum()), 0
    while rest and len(taken) * _LOOKED_AT <= len(items):
        costs = [int(items.cost[_fill(ascending, taken, capacity)].sum()) for _ in range(dp_world_size)]
        rest -= sum(costs)
        lasted += max(costs)
        if lasted * dp_world_size + rest >= at_least * dp_world_size:
            return True
    return False


def _fill(ascending: list[int], taken: dict[int, int], room: int) -> NDArray[np.int64]:
    """Take the longest samples left that fit into `room`; returns their positions."""
    positions: list[int] = []
    while True:
        begin = at = bisect_left(ascending, -room)
        while at in taken:
            at = taken[at]
        if at > begin:
            taken[begin] = at
        if at == len(ascending):
            return np.array(positions, dtype=np.int64)
        taken[at] = at + 1
        room += ascending[at]
        positions.append(at)
