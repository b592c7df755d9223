"""Bins into rounds: sorted by cost and cut is the best there is, and what is handed to ranks stays together."""

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dataserver.packing.placement import Items
from dataserver.packing.rounds import by_cost, even_out_ranks, in_bin_order, rounds_of

shapes = st.sampled_from([(1, 4), (2, 2), (2, 3), (3, 2), (6, 1)])


def alone(costs):
    """Items of these costs, each in its bin."""
    costs = np.array(costs, dtype=np.int64)
    return Items(index=np.arange(len(costs)), size=costs, cost=costs), np.arange(len(costs))


@given(shape=shapes, data=st.data())
def test_no_order_of_the_bins_lasts_shorter_than_the_one_by_cost(shape, data):
    rounds, ranks = shape
    costs = data.draw(st.lists(st.integers(1, 20), min_size=rounds * ranks, max_size=rounds * ranks))
    found = by_cost(*alone(costs), rounds=rounds, dp_world_size=ranks)
    best = min(
        sum(max(order[at : at + ranks]) for at in range(0, len(order), ranks)) for order in set(permutations(costs))
    )
    assert found.duration == best


@given(shape=shapes, data=st.data())
def test_ranks_are_evened_out_within_rounds_that_keep_their_bins(shape, data):
    rounds, ranks = shape
    costs = data.draw(st.lists(st.integers(1, 20), min_size=rounds * ranks, max_size=rounds * ranks))
    given_order = in_bin_order(*alone(costs), rounds=rounds, dp_world_size=ranks)
    found = even_out_ranks(given_order)
    assert (np.sort(found.numbers, axis=1) == np.sort(given_order.numbers, axis=1)).all()
    sums = np.zeros(ranks, dtype=int)
    for row in found.table:
        # Who had less so far gets no less now.
        order = np.lexsort((-row, sums))
        assert (np.diff(row[order]) <= 0).all()
        sums += row


@given(
    bins=st.lists(st.integers(0, 5), max_size=40).map(lambda bins: np.array(bins, dtype=np.int64)),
    order=st.permutations(range(6)),
)
def test_the_samples_of_each_bin_are_listed_in_ascending_order(bins, order):
    numbers = np.array(order).reshape(2, 3)
    found = rounds_of(bins, numbers)
    for row, group in zip(numbers.tolist(), found, strict=True):
        assert [bin_.tolist() for bin_ in group] == [np.flatnonzero(bins == number).tolist() for number in row]
        assert {bin_.dtype for bin_ in group} == {np.dtype(np.int64)}
