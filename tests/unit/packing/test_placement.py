"""The placements with heaps give exactly what the textbook gives with a scan over all bins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.packing.full import place_cheapest
from dataserver.packing.placement import Items, Rule, place, place_in_order

CAPACITY = 60

descending_sizes = st.lists(st.integers(1, CAPACITY), min_size=1, max_size=80).map(lambda sizes: sorted(sizes)[::-1])

PREFERENCES = {
    Rule.CHEAPEST: lambda number, room, cost: (cost, number),
    Rule.FIRST_FIT: lambda number, room, cost: number,
    Rule.BEST_FIT: lambda number, room, cost: (room, number),
}


def items_of(sizes, quadratic=1):
    sizes = np.array(sizes, dtype=np.int64)
    return Items(index=np.arange(len(sizes)), size=sizes, cost=sizes + quadratic * sizes * sizes)


def scanned(items, prefer, opened=0, capacity=CAPACITY):
    """The bin of each item by looking at every bin for every item."""
    rooms, costs, bins = [capacity] * opened, [0] * opened, []
    for size, cost in zip(items.size.tolist(), items.cost.tolist(), strict=True):
        fitting = [number for number, room in enumerate(rooms) if room >= size]
        if not fitting:
            rooms.append(capacity)
            costs.append(0)
            fitting = [len(rooms) - 1]
        number = min(fitting, key=lambda number: PREFERENCES[prefer](number, rooms[number], costs[number]))
        rooms[number] -= size
        costs[number] += cost
        bins.append(number)
    return bins


@pytest.mark.parametrize("rule", Rule)
@given(sizes=descending_sizes)
def test_the_heaps_choose_the_bins_that_a_scan_chooses(rule, sizes):
    items = items_of(sizes)
    assert place(items, capacity=CAPACITY, rule=rule).tolist() == scanned(items, rule)


@given(sizes=descending_sizes, opened=st.integers(0, 12))
def test_the_cheapest_bin_is_the_one_that_a_scan_finds(sizes, opened):
    items = items_of(sizes)
    assert place_cheapest(items, capacity=CAPACITY, opened=opened).tolist() == scanned(items, Rule.CHEAPEST, opened)


@given(sizes=descending_sizes, rooms=st.lists(st.integers(0, CAPACITY), max_size=12), most=st.integers(0, 40))
def test_bins_that_stand_ready_are_filled_up_and_no_more_than_allowed_open(sizes, rooms, most):
    items = items_of(sizes)
    opened = np.array(rooms, dtype=np.int64)
    bins = place(items, capacity=CAPACITY, rule=Rule.BEST_FIT, opened=opened, most=max(most, len(rooms)))
    placed = bins < max(most, len(rooms))
    used = np.bincount(bins[placed], weights=items.size[placed], minlength=len(rooms))
    assert (used[: len(rooms)] <= opened).all()
    assert used.max(initial=0) <= CAPACITY
    assert placed[: int(placed.sum())].all()


@given(sizes=st.lists(st.integers(1, CAPACITY), min_size=1, max_size=80))
def test_next_fit_opens_a_bin_where_the_last_one_is_full(sizes):
    bins, number, used = [], 0, 0
    for size in sizes:
        if used + size > CAPACITY:
            number, used = number + 1, 0
        used += size
        bins.append(number)
    assert place_in_order(np.array(sizes), capacity=CAPACITY).tolist() == bins


def test_first_fit_decreasing_on_a_known_case():
    assert place(items_of([40, 35, 25, 20, 12, 8]), capacity=CAPACITY, rule=Rule.FIRST_FIT).tolist() == [
        0,
        1,
        1,
        0,
        2,
        2,
    ]
