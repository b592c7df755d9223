"""The placements with heaps give exactly what the textbook gives with a scan over all bins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.packing.placement import Items, Rule, place

CAPACITY = 60

descending_sizes = st.lists(st.integers(1, CAPACITY), min_size=1, max_size=80).map(lambda sizes: sorted(sizes)[::-1])


def items_of(sizes, quadratic=1):
    return Items(index=list(range(len(sizes))), size=sizes, cost=[size + quadratic * size * size for size in sizes])


def scanned(items, rule, opened):
    """Members of each bin by looking at every bin for every item."""
    rooms, costs, members = [CAPACITY] * opened, [0] * opened, [[] for _ in range(opened)]
    prefer = {
        Rule.FIRST_FIT: lambda number: number,
        Rule.BEST_FIT: lambda number: (rooms[number], number),
        Rule.CHEAPEST: lambda number: (costs[number], number),
    }[rule]
    for index, size, cost in zip(items.index, items.size, items.cost, strict=True):
        fitting = [number for number, room in enumerate(rooms) if room >= size]
        if not fitting:
            rooms.append(CAPACITY)
            costs.append(0)
            members.append([])
            fitting = [len(rooms) - 1]
        number = min(fitting, key=prefer)
        rooms[number] -= size
        costs[number] += cost
        members[number].append(index)
    return members


@pytest.mark.parametrize("rule", Rule)
@given(sizes=descending_sizes, opened=st.integers(0, 12))
def test_the_heaps_choose_the_bins_that_a_scan_chooses(rule, sizes, opened):
    items = items_of(sizes)
    assert place(items, capacity=CAPACITY, rule=rule, opened=opened).members == scanned(items, rule, opened)


@pytest.mark.parametrize("rule", Rule)
@given(sizes=descending_sizes)
def test_the_columns_of_a_bin_agree(rule, sizes):
    items = items_of(sizes)
    bins = place(items, capacity=CAPACITY, rule=rule, opened=3)
    assert bins.room == [CAPACITY - sum(sizes[index] for index in members) for members in bins.members]
    assert bins.cost == [sum(items.cost[index] for index in members) for members in bins.members]


def test_first_fit_decreasing_on_a_known_case():
    bins = place(items_of([40, 35, 25, 20, 12, 8]), capacity=CAPACITY, rule=Rule.FIRST_FIT, opened=0)
    assert bins.members == [[0, 3], [1, 2], [4, 5]]


def test_costs_beyond_64_bits_are_exact():
    items = Items(index=[0, 1, 2], size=[3, 3, 2], cost=[2**70 + 1, 2**70, 5])
    assert place(items, capacity=6, rule=Rule.CHEAPEST, opened=2).cost == [2**70 + 1, 2**70 + 5]
