"""How well a plan is packed: three figures that mean something only together."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.cost import CostModel
from dataserver.packing.rounds import Rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingFigures:
    """`token_efficiency`: tokens over bins times capacity.

    `rank_imbalance`: highest rank cost over mean rank cost.
    `round_inflation`: sum over rounds of the highest cost, over the sum of the mean costs; the
    factor by which imbalance lengthens an FSDP step, where ranks meet in every round.
    """

    token_efficiency: float
    rank_imbalance: float
    round_inflation: float


def packing_figures(lengths: NDArray[np.int64], rounds: Rounds, *, capacity: int, cost: CostModel) -> PackingFigures:
    """The figures of `rounds` over samples of `lengths` (int64[n], n >= 1), exact up to the last division."""
    costs = cost.of(lengths)
    table = [[sum(costs[index] for index in bin_.tolist()) for bin_ in group] for group in rounds]
    ranks = len(rounds[0])
    total = sum(costs)
    slowest_rank = max(sum(column) for column in zip(*table, strict=True))
    slowest_rounds = sum(max(row) for row in table)
    return PackingFigures(
        token_efficiency=int(lengths.sum()) / (len(rounds) * ranks * capacity),
        rank_imbalance=slowest_rank * ranks / total,
        round_inflation=slowest_rounds * ranks / total,
    )
