"""How well a plan is packed: three figures that mean something only together, and what bounds them."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingBounds:
    """What no plan of the same samples, ranks and number of rounds can beat.

    `token_efficiency`: with `ceil(tokens / capacity)` full bins. `rank_imbalance` and
    `round_inflation`: above 1 where a long sample costs more than what can stand beside it.
    """

    token_efficiency: float
    rank_imbalance: float
    round_inflation: float


def packing_figures(lengths: NDArray[np.int64], rounds: Rounds, *, capacity: int, cost: CostModel) -> PackingFigures:
    """The figures of `rounds` over samples of `lengths` (int64[n], n >= 1)."""
    table = cost_table(lengths, rounds, cost)
    ranks = table.shape[1]
    total = int(table.sum())
    return PackingFigures(
        token_efficiency=int(lengths.sum()) / (table.size * capacity),
        rank_imbalance=int(table.sum(axis=0).max()) * ranks / total,
        round_inflation=int(table.max(axis=1).sum()) * ranks / total,
    )


def packing_bounds(lengths: NDArray[np.int64], rounds: Rounds, *, capacity: int, cost: CostModel) -> PackingBounds:
    """The bounds for samples of `lengths` (int64[n], n >= 1) in as many rounds and ranks as `rounds`."""
    bins, ranks = len(rounds) * len(rounds[0]), len(rounds[0])
    descending = -np.sort(-lengths)
    costs = cost.scaled(descending)
    share = int(costs.sum()) / ranks
    fullest = _fullest_bins(descending, costs, capacity, cost)
    shortest = _shortest_duration(descending, costs, len(rounds), ranks, capacity=capacity, fullest=fullest)
    return PackingBounds(
        token_efficiency=-(-int(lengths.sum()) // capacity) / bins,
        rank_imbalance=max(1.0, int(costs[0]) / share),
        round_inflation=max(1.0, shortest / share),
    )


def _shortest_duration(
    lengths: NDArray[np.int64],
    costs: NDArray[np.int64],
    rounds: int,
    ranks: int,
    *,
    capacity: int,
    fullest: NDArray[np.float64],
) -> float:
    """No plan's sum over rounds of the costliest bin is below this; lengths and costs descend.

    Of the k + 1 longest samples at most `capacity // lengths[k]` share a bin, so they reach into
    round `k // (ranks * that)`, counted from 0 in descending order, which therefore lasts as long as
    the k-th sample. And m rounds hold at most the cost of the longest samples that fill them, and
    at most what the longest samples of as many bins leave room for; the rest has to last its share
    in the rounds that follow.
    """
    reached = np.minimum(np.arange(len(lengths)) // (ranks * (capacity // lengths)), rounds - 1)
    floors = np.zeros(rounds, dtype=np.int64)
    np.maximum.at(floors, reached, costs)
    floors = np.maximum.accumulate(floors[::-1])[::-1]
    tokens, held = np.cumsum(lengths), np.cumsum(costs).astype(np.float64)
    filled = np.interp(np.arange(rounds + 1) * ranks * capacity, [0, *tokens], [0.0, *held])
    most = np.concatenate(([0.0], np.cumsum(fullest)))
    filled = np.minimum(filled, most[np.minimum(np.arange(rounds + 1) * ranks, len(lengths))])
    rests = (held[-1] - filled) / ranks
    return float((np.concatenate(([0], np.cumsum(floors))) + rests).max())


def _fullest_bins(
    lengths: NDArray[np.int64], costs: NDArray[np.int64], capacity: int, cost: CostModel
) -> NDArray[np.float64]:
    """What a bin costs at most of which sample k is the longest, float64[n] in units of `costs`; descends.

    Beside a sample of n tokens there is room for `capacity - n` more, in samples of at most `min(n, capacity - n)`,
    and a shorter sample costs less a token.
    """
    n, linear, quadratic = lengths.astype(np.float64), float(cost.linear), float(cost.quadratic)
    unit = float(costs[0]) / ((linear + quadratic * n[0]) * n[0])
    room = capacity - n
    beside: NDArray[np.float64] = room * (linear + quadratic * np.minimum(n, room)) * unit
    return costs + beside


def cost_table(lengths: NDArray[np.int64], rounds: Rounds, cost: CostModel) -> NDArray[np.int64]:
    """Cost of the bin of rank r in round j, int64[J, R], scaled so that all sums fit."""
    costs = cost.scaled(lengths)
    members = [bin_ for group in rounds for bin_ in group]
    ends = np.cumsum([len(bin_) for bin_ in members])
    sums = np.concatenate(([0], np.cumsum(costs[np.concatenate(members)])))
    return np.diff(sums[np.concatenate(([0], ends))]).reshape(len(rounds), len(rounds[0]))
