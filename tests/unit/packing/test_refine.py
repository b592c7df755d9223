"""Exchanging samples within rounds: nothing is lost, nothing overflows, and no round gets longer."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dataserver.packing.placement import Items, Rule, place
from dataserver.packing.refine import refine
from dataserver.packing.rounds import by_cost

CAPACITY = 100


def arranged(sizes, ranks):
    sizes = np.array(sizes, dtype=np.int64)
    items = Items(index=np.arange(len(sizes)), size=sizes, cost=10 * sizes + sizes * sizes)
    bins = place(items, capacity=CAPACITY, rule=Rule.BEST_FIT)
    return items, by_cost(items, bins, rounds=-(-(int(bins.max()) + 1) // ranks), dp_world_size=ranks)


@settings(max_examples=200)
@given(
    sizes=st.lists(st.integers(1, CAPACITY), min_size=1, max_size=120).map(lambda sizes: sorted(sizes)[::-1]),
    ranks=st.integers(1, 8),
)
def test_no_round_gets_longer_and_no_bin_overflows(sizes, ranks):
    items, before = arranged(sizes, ranks)
    after = refine(items, before, capacity=CAPACITY)
    assert (after.table.max(axis=1) <= before.table.max(axis=1)).all()
    assert (after.table.sum(axis=1) == before.table.sum(axis=1)).all()
    assert np.bincount(after.bins, weights=items.size).max() <= CAPACITY
    cost = np.zeros_like(after.cost)
    np.add.at(cost, after.bins, items.cost)
    assert (cost == after.cost).all()


def test_two_long_samples_of_one_bin_are_parted():
    items, before = arranged([50, 50, 10, 10], 2)
    assert before.table.tolist() == [[6000, 400]]
    assert refine(items, before, capacity=CAPACITY).table.tolist() == [[3200, 3200]]


def test_the_work_is_bounded_whatever_the_size():
    items, before = arranged(np.sort(np.random.default_rng(1).integers(2, 90, 2000))[::-1], 8)
    untouched = refine(items, before, capacity=CAPACITY, compared=0)
    assert (untouched.bins == before.bins).all()
