"""Costs are what a sample takes relative to others: in which unit makes no difference, up to where 64 bits end."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dataserver.packing.cost import CostModel
from dataserver.packing.pack import Filling, pack
from dataserver.packing.placement import Items
from dataserver.packing.refine import refine
from dataserver.packing.rounds import by_cost
from dataserver.run_spec import PackingPolicy

CAPACITY = 128

# So fine that halves and shares of costs, which are rounded, leave no difference.
FINE_BITS = 20

# What the sum of all costs stays below.
SUM_BITS = 62

WAYS = [
    {"policy": PackingPolicy.BALANCED},
    {"policy": PackingPolicy.BALANCED, "filling": Filling.EQUALLY_FULL, "spread": True},
    {"policy": PackingPolicy.BALANCED, "filling": Filling.IN_LEVELS},
    {"policy": PackingPolicy.COST_BALANCED},
]


def planned(lengths, ranks, cost, bits, way):
    scaled = CostModel(cost.linear << bits, cost.quadratic << bits)
    rounds = pack(lengths, dp_world_size=ranks, capacity=CAPACITY, alignment=1, cost=scaled, **way)
    return [[bin_.tolist() for bin_ in group] for group in rounds]


def largest(total):
    """By how many bits costs of this sum may grow."""
    return SUM_BITS - total.bit_length()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(str(value) for value in way.values()))
@settings(max_examples=60)
@given(
    lengths=st.lists(st.one_of(st.integers(1, 20), st.integers(1, CAPACITY)), min_size=1, max_size=120),
    ranks=st.integers(1, 8),
    cost=st.sampled_from([CostModel(1, 0), CostModel(0, 1), CostModel(50, 1)]),
)
@example(lengths=[128] + [30] * 40, ranks=4, cost=CostModel(0, 1))
def test_the_largest_costs_there_may_be_give_the_plan_of_small_ones(way, lengths, ranks, cost):
    lengths = np.array(lengths, dtype=np.int64)
    most = largest((cost.linear + cost.quadratic * int(lengths.max())) * int(lengths.sum()))
    assert planned(lengths, ranks, cost, most, way) == planned(lengths, ranks, cost, FINE_BITS, way)


@pytest.mark.parametrize("bits", [FINE_BITS, 40, largest(9000 + 4200 + 5 * 1200)])
def test_a_round_takes_on_cost_whatever_the_unit(bits):
    sizes = np.array([90, 60, 30, 30, 30, 30, 30])
    items = Items(index=np.arange(7), size=sizes, cost=(10 * sizes + sizes * sizes) << bits)
    before = by_cost(items, np.array([0, 1, 2, 2, 2, 3, 3]), rounds=2, dp_world_size=2)
    after = refine(items, before, capacity=100)
    assert (after.table >> bits).tolist() == [[9000, 5400], [2400, 2400]]
