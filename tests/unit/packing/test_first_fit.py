"""What first rounds tell about first-fit is true of all of it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dataserver.packing.first_fit import first_fit_lasts
from dataserver.packing.placement import Items, Rule, place
from dataserver.packing.rounds import in_bin_order

CAPACITY = 60


def items_of(sizes):
    sizes = np.sort(np.array(sizes, dtype=np.int64))[::-1]
    return Items(index=np.arange(len(sizes)), size=sizes, cost=sizes + sizes * sizes)


def first_fit_duration(items, ranks):
    bins = place(items, capacity=CAPACITY, rule=Rule.FIRST_FIT)
    return in_bin_order(items, bins, rounds=-(-(int(bins.max()) + 1) // ranks), dp_world_size=ranks).duration


@given(
    sizes=st.lists(st.integers(1, CAPACITY), min_size=1, max_size=120),
    ranks=st.integers(1, 6),
    excess=st.fractions(0, 1),
)
def test_it_says_yes_only_where_first_fit_lasts_so_long(sizes, ranks, excess):
    items = items_of(sizes)
    at_least = int(items.cost.sum() / ranks * (1 + excess))
    if first_fit_lasts(items, capacity=CAPACITY, dp_world_size=ranks, at_least=at_least):
        assert first_fit_duration(items, ranks) >= at_least


def test_uneven_first_rounds_tell_it_at_once():
    items = items_of([60, 30, 30, *[6] * 200])
    duration = first_fit_duration(items, 2)
    assert first_fit_lasts(items, capacity=CAPACITY, dp_world_size=2, at_least=int(items.cost.sum()) // 2 + 1)
    assert not first_fit_lasts(items, capacity=CAPACITY, dp_world_size=2, at_least=duration + 1)
