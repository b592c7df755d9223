"""Filling rounds to the level of their costliest sample."""

from hypothesis import given
from hypothesis import strategies as st

from dataserver.packing.levels import place_in_levels
from dataserver.packing.placement import Items, Rule, place
from dataserver.packing.rounds import by_cost

CAPACITY = 60


def items_of(sizes):
    return Items(index=list(range(len(sizes))), size=sizes, cost=[size + size * size for size in sizes])


@given(
    sizes=st.lists(st.integers(1, CAPACITY), min_size=1, max_size=80).map(lambda sizes: sorted(sizes)[::-1]),
    ranks=st.integers(1, 6),
    rounds=st.integers(1, 6),
)
def test_every_item_is_placed_once_and_no_bin_overflows(sizes, ranks, rounds):
    bins = place_in_levels(items_of(sizes), capacity=CAPACITY, bins_allowed=ranks * rounds, dp_world_size=ranks)
    assert sorted(index for members in bins.members for index in members) == list(range(len(sizes)))
    assert bins.room == [CAPACITY - sum(sizes[index] for index in members) for members in bins.members]
    assert min(bins.room) >= 0
    assert bins.number == list(range(len(bins)))


def test_one_long_sample_has_its_round_filled_up_by_the_others():
    sizes = [60, *[20] * 9]
    bins = place_in_levels(items_of(sizes), capacity=CAPACITY, bins_allowed=6, dp_world_size=3)
    assert [len(members) for members in bins.members] == [1, 3, 3, 1, 1, 1]
    even = place(items_of(sizes), capacity=CAPACITY, rule=Rule.CHEAPEST, opened=6)
    assert by_cost(bins, rounds=2, dp_world_size=3).duration < by_cost(even, rounds=2, dp_world_size=3).duration


def test_no_other_bin_of_the_round_outlasts_its_costliest_sample():
    bins = place_in_levels(items_of([40, 39, 20, 20, 5]), capacity=CAPACITY, bins_allowed=4, dp_world_size=2)
    assert bins.members == [[0], [1, 4], [2], [3]]


def test_samples_below_the_mean_bin_are_spread_evenly():
    items = items_of([10] * 24)
    bins = place_in_levels(items, capacity=CAPACITY, bins_allowed=6, dp_world_size=3)
    assert bins.members == place(items, capacity=CAPACITY, rule=Rule.CHEAPEST, opened=6).members
