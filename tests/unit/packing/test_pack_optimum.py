"""`balanced` against the optimum of small cases, which an integer programme finds."""

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from dataserver.packing.cost import CostModel
from dataserver.packing.figures import packing_bounds, packing_figures
from dataserver.packing.pack import pack
from dataserver.run_spec import PackingPolicy

CAPACITY = 100

# A dozen samples in few bins leave little to choose from: the worst of these cases is this near.
NEAR = 1.06


def shortest_duration(lengths, costs, rounds, ranks):
    """Least sum over rounds of the costliest bin, of all packings, as far as it was found; and what none is below.

    Variables: sample i is in bin (j, r); then the duration of round j. Rounds descend, which breaks their symmetry.
    """
    samples, bins = len(lengths), rounds * ranks
    places = samples * bins
    rows = samples + bins + bins + rounds - 1
    matrix, low, high = lil_array((rows, places + rounds)), np.full(rows, -np.inf), np.zeros(rows)
    for sample in range(samples):
        matrix[sample, sample * bins : (sample + 1) * bins] = 1
        low[sample] = high[sample] = 1
    for bin_ in range(bins):
        matrix[samples + bin_, range(bin_, places, bins)] = lengths
        high[samples + bin_] = CAPACITY
        matrix[samples + bins + bin_, range(bin_, places, bins)] = costs
        matrix[samples + bins + bin_, places + bin_ // ranks] = -1
    for round_ in range(rounds - 1):
        matrix[samples + 2 * bins + round_, [places + round_, places + round_ + 1]] = [-1, 1]
    objective = np.concatenate([np.zeros(places), np.ones(rounds)])
    integral = np.concatenate([np.ones(places), np.zeros(rounds)])
    upper = np.concatenate([np.ones(places), np.full(rounds, np.inf)])
    found = milp(
        objective,
        constraints=LinearConstraint(matrix.tocsr(), low, high),
        integrality=integral,
        bounds=Bounds(0, upper),
        options={"time_limit": 5, "mip_rel_gap": 0.002},
    )
    return float(found.fun), float(found.mip_dual_bound)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("rounds", "ranks", "samples", "quadratic"), [(1, 3, 11, 1), (2, 2, 11, 1), (2, 3, 12, 0)])
def test_balanced_is_near_the_optimum(seed, rounds, ranks, samples, quadratic):
    rng = np.random.default_rng([seed, rounds, ranks])
    lengths = np.clip(np.exp(rng.normal(np.log(30), 0.6, samples)), 2, 80).astype(np.int64)
    cost = CostModel(30, quadratic)
    plan = pack(lengths, dp_world_size=ranks, capacity=CAPACITY, alignment=1, policy=PackingPolicy.BALANCED, cost=cost)
    costs = np.array(cost.of(lengths))
    share = costs.sum() / ranks
    duration = packing_figures(lengths, plan, capacity=CAPACITY, cost=cost).round_inflation * share
    best, proven = shortest_duration(lengths, costs, len(plan), ranks)
    assert duration <= best * NEAR
    assert packing_bounds(lengths, plan, capacity=CAPACITY, cost=cost).round_inflation * share <= best * (1 + 1e-6)
    assert proven <= duration * (1 + 1e-6)
