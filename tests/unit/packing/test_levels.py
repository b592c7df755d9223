"""Filling rounds to the level of their costliest sample."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dataserver.packing.full import place_cheapest
from dataserver.packing.levels import place_in_levels
from dataserver.packing.placement import Items
from dataserver.packing.rounds import by_cost

CAPACITY = 60


def items_of(sizes):
    sizes = np.array(sizes, dtype=np.int64)
    return Items(index=np.arange(len(sizes)), size=sizes, cost=sizes + sizes * sizes)


@given(
    sizes=st.lists(st.integers(1, CAPACITY), min_size=1, max_size=80).map(lambda sizes: sorted(sizes)[::-1]),
    ranks=st.integers(1, 6),
    rounds=st.integers(1, 6),
)
def test_every_item_is_placed_and_no_bin_overflows_where_the_bins_suffice(sizes, ranks, rounds):
    items = items_of(sizes)
    bins = place_in_levels(items, capacity=CAPACITY, rounds=rounds, dp_world_size=ranks)
    assert bins.min() >= 0
    assert bins.max() >= ranks * rounds or np.bincount(bins, weights=items.size).max() <= CAPACITY


def test_one_long_sample_has_its_round_filled_up_by_the_others():
    items = items_of([60, *[20] * 9])
    bins = place_in_levels(items, capacity=CAPACITY, rounds=2, dp_world_size=3)
    assert np.bincount(bins).tolist() == [1, 3, 3, 1, 1, 1]
    even = place_cheapest(items, capacity=CAPACITY, opened=6)
    durations = [by_cost(items, found, rounds=2, dp_world_size=3).duration for found in (bins, even)]
    assert durations[0] < durations[1]


def test_no_other_bin_of_the_round_outlasts_its_costliest_sample():
    bins = place_in_levels(items_of([40, 39, 20, 20, 5]), capacity=CAPACITY, rounds=2, dp_world_size=2)
    assert bins.tolist() == [0, 1, 2, 3, 1]


def test_samples_below_the_mean_bin_are_spread_evenly():
    items = items_of([10] * 24)
    bins = place_in_levels(items, capacity=CAPACITY, rounds=2, dp_world_size=3)
    assert bins.tolist() == place_cheapest(items, capacity=CAPACITY, opened=6).tolist()


def test_a_level_is_raised_where_filling_to_it_would_waste_too_much_room():
    # To the level of the 50, three 20s cost half of what they may, and half of their bin would stay empty.
    items = items_of([50, *[25] * 4, *[2] * 30])
    bins = place_in_levels(items, capacity=CAPACITY, rounds=2, dp_world_size=2)
    assert bins.max() < 4
    assert np.bincount(bins, weights=items.size).max() <= CAPACITY
