"""Exchanging samples between bins: nothing is lost, nothing overflows, and nothing lasts longer than before."""

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
def test_nothing_lasts_longer_and_no_bin_overflows(sizes, ranks):
    items, before = arranged(sizes, ranks)
    after = refine(items, before, capacity=CAPACITY)
    assert after.duration <= before.duration
    assert sorted(after.numbers.ravel().tolist()) == list(range(after.numbers.size))
    assert np.bincount(after.bins, weights=items.size).max() <= CAPACITY
    cost = np.zeros_like(after.cost)
    np.add.at(cost, after.bins, items.cost)
    assert (cost == after.cost).all()


@given(
    sizes=st.lists(st.integers(1, CAPACITY), min_size=1, max_size=120).map(lambda sizes: sorted(sizes)[::-1]),
    ranks=st.integers(1, 8),
)
def test_no_round_has_a_bin_that_costs_more_than_one_of_an_earlier_round(sizes, ranks):
    items, before = arranged(sizes, ranks)
    table = refine(items, before, capacity=CAPACITY).table
    assert (table[:-1].min(axis=1) >= table[1:].max(axis=1)).all()


def test_two_long_samples_of_one_bin_are_parted():
    items, before = arranged([50, 50, 10, 10], 2)
    assert before.table.tolist() == [[6000, 400]]
    assert refine(items, before, capacity=CAPACITY).table.tolist() == [[3200, 3200]]


def test_full_bins_exchange_a_long_sample_for_short_ones_of_the_same_size():
    items, before = arranged([60, 40, 20, 20, 20, 20, 20], 2)
    assert [sorted(items.size[before.bins == number].tolist()) for number in (0, 1)] == [[40, 60], [20] * 5]
    after = refine(items, before, capacity=CAPACITY)
    assert sorted(sorted(items.size[after.bins == number].tolist()) for number in (0, 1)) == [
        [20, 20, 20, 40],
        [20, 20, 60],
    ]


def test_a_round_that_a_long_sample_keeps_up_takes_on_cost_from_those_that_follow():
    sizes = np.array([90, 60, 30, 30, 30, 30, 30])
    items = Items(index=np.arange(7), size=sizes, cost=10 * sizes + sizes * sizes)
    before = by_cost(items, np.array([0, 1, 2, 2, 2, 3, 3]), rounds=2, dp_world_size=2)
    after = refine(items, before, capacity=CAPACITY)
    assert before.duration == 9000 + 3600
    assert after.table.tolist() == [[9000, 5400], [2400, 2400]]


def test_the_work_is_bounded_whatever_the_size():
    items, before = arranged(np.sort(np.random.default_rng(1).integers(2, 90, 2000))[::-1], 8)
    untouched = refine(items, before, capacity=CAPACITY, looked_at=0)
    assert (untouched.bins == before.bins).all()
