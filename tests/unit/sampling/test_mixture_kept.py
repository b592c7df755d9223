"""How a mixture keeps to its weights: what came of each source, its target, and a bound that holds at any place."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.run_spec import Shuffle
from dataserver.sampling.order import Place
from dataserver.sampling.union import plain_union
from dataserver.weighting import Stopping

# Targets and bounds are floats.
ROUNDED = 1e-9

REPEATING = [stopping for stopping in Stopping if stopping is not Stopping.ALL_EXHAUSTED_WITHOUT_REPLACEMENT]


def served(order, place, count):
    """How often each source comes, counted one by one."""
    counts = Counter(order.samples(place, count).source.tolist())
    return [counts[source] for source in range(len(order.sizes))]


@given(
    weights=st.lists(st.integers(0, 40), min_size=1, max_size=7).filter(any),
    stopping=st.sampled_from(REPEATING),
    count=st.integers(1, 700),
)
def test_what_is_drawn_is_within_the_bound_of_the_share_that_a_weight_says(order_of, rows, weights, stopping, count):
    order = order_of([rows(11 + 7 * number) for number in range(len(weights))], weights, stopping=stopping)
    end = order.moved(Place(), count)
    drawn = order.draws(Place(), end)
    assert [each.draws for each in drawn] == served(order, Place(), count)
    levels = (sum(weight > 0 for weight in weights) - 1).bit_length()
    for each, weight in zip(drawn, weights, strict=True):
        target = Fraction(count * weight, sum(weights))
        assert each.target == pytest.approx(float(target), rel=1e-12)
        assert abs(each.draws - target) - ROUNDED <= each.error <= levels / 2 * (end.epoch + 1) + ROUNDED


@given(weights=st.lists(st.integers(1, 40), min_size=2, max_size=5), count=st.integers(1, 300))
def test_without_replacement_a_target_is_bounded_by_the_rows_and_met_when_the_epoch_ends(
    order_of, rows, weights, count
):
    sizes = [5 + 9 * number for number in range(len(weights))]
    order = order_of([rows(size) for size in sizes], weights, stopping="all_exhausted_without_replacement")
    drawn = order.draws(Place(), order.moved(Place(), count))
    assert [each.draws for each in drawn] == served(order, Place(), count)
    assert sum(each.target for each in drawn) == pytest.approx(count, rel=1e-12)
    assert all(abs(each.draws - each.target) <= each.error + ROUNDED for each in drawn)


def test_weights_that_are_no_small_fraction_widen_the_bound_by_what_they_are_rounded_by(order_of, rows):
    order = order_of([rows(10**6), rows(10**6)], [0.123456789123, 1], stopping="first_exhausted")
    (first, _) = order.draws(Place(), Place(epoch=0, position=order.epoch_size))
    assert 0.5 < first.error < 0.5 + order.epoch_size / 2**22


def test_a_later_stage_counts_from_where_it_began(order_of, rows):
    first = order_of([rows(50), rows(70)], [1, 1])
    later = order_of([rows(50), rows(70)], [1, 4], stage=1)
    begin = later.begin(3, first.drawn(Place(epoch=3, position=20)))
    drawn = later.draws(begin, later.moved(begin, 105))
    assert [each.draws for each in drawn] == served(later, begin, 105)
    assert [each.target for each in drawn] == pytest.approx([21, 84], rel=1e-12)


def test_a_union_draws_nothing_by_weight():
    assert plain_union((3, 4), seed=1, shuffle=Shuffle.FULL).draws(Place(), Place(position=2)) == ()


@pytest.mark.parametrize("position", [0, 1])
def test_nothing_drawn_is_off_by_nothing_but_the_bound(order_of, rows, position):
    order = order_of([rows(5), rows(5)], [1, 1])
    errors = [each.error for each in order.draws(Place(), Place(position=position))]
    assert errors == [position / 2] * 2
