"""Samples that fit nowhere find a place where all bins together have room for them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dataserver.packing.pack import CostModel, pack
from dataserver.packing.placement import Items, Rule, place
from dataserver.packing.repair import repair
from dataserver.run_spec import PackingPolicy

CAPACITY = 100


def items_of(sizes):
    sizes = np.array(sizes, dtype=np.int64)
    return Items(index=np.arange(len(sizes)), size=sizes, cost=sizes + sizes * sizes)


def test_room_in_two_bins_comes_together_in_one():
    items = items_of([60, 50, 40, 35, 10])
    bins = repair(items, np.array([0, 1, 1, 0, 2]), capacity=CAPACITY, bins_allowed=2)
    assert bins.max() == 1
    assert np.bincount(bins, weights=items.size).max() <= CAPACITY


def test_where_all_bins_together_lack_room_nothing_changes():
    items = items_of([60, 50, 40, 35, 16])
    bins = np.array([0, 1, 1, 0, 2])
    assert repair(items, bins, capacity=CAPACITY, bins_allowed=2) is bins


@settings(max_examples=200)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=120).map(lambda sizes: sorted(sizes)[::-1]),
    spare=st.integers(0, 2),
)
def test_what_has_a_place_afterwards_fits_it(sizes, spare):
    items = items_of(sizes)
    allowed = -(-sum(sizes) // CAPACITY) + spare
    before = place(items, capacity=CAPACITY, rule=Rule.BEST_FIT, most=allowed)
    after = repair(items, before, capacity=CAPACITY, bins_allowed=allowed)
    assert len(after) == len(sizes)
    if after is not before:
        assert after.max() < allowed
        assert np.bincount(after, weights=items.size).max() <= CAPACITY


def test_samples_of_eight_to_a_bin_fill_all_bins_to_the_last_thousandth():
    """No placement of one sample after the other gets them into fewer than five rounds."""
    rng = np.random.default_rng(3)
    lengths = np.clip(np.exp(rng.normal(np.log(15_000), 0.55, 4000)), 2, 32_768).astype(np.int64)
    lengths = lengths[: np.searchsorted(np.cumsum(lengths), int(4 * 64 * 131_072 * 0.999), side="right")]
    rounds = {}
    for policy in (PackingPolicy.BALANCED, PackingPolicy.FIRST_FIT):
        cost = CostModel(10_000, 1)
        plan = pack(lengths, dp_world_size=64, capacity=131_072, alignment=1, policy=policy, cost=cost)
        rounds[policy] = len(plan)
    assert rounds == {PackingPolicy.BALANCED: 4, PackingPolicy.FIRST_FIT: 5}
