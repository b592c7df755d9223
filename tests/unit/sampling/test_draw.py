"""Draws follow the weights at any time, exactly and without memory."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.sampling.draw import Draw

weights_of_sources = st.lists(st.integers(0, 1000), min_size=1, max_size=9).filter(any)


def draw_of(weights):
    return Draw([Fraction(weight) for weight in weights])


def counts_of(sources, of):
    return [int(np.count_nonzero(sources == source)) for source in range(of)]


# The formula, fixed: i * w and (i + 1) * w, half a draw earlier or later, give other vectors.
@pytest.mark.parametrize(
    ("weights", "sources"),
    [
        ((1, 1), "01010101010101010101"),
        ((1, 2), "10110110110110110110"),
        ((1, 3, 1), "11021110211102111021"),
        ((7, 2, 1), "01000200100100020010"),
        ((0, 1, 0, 1), "13131313131313131313"),
        ((5,), "00000000000000000000"),
    ],
)
def test_the_first_draws_are_these(weights, sources):
    found, _ = draw_of(weights)(np.arange(20))
    assert "".join(map(str, found.tolist())) == sources


@given(weights=weights_of_sources, draws=st.integers(0, 5000))
def test_a_source_is_off_its_share_by_half_a_draw_for_each_level_of_the_tree(weights, draws):
    on = sum(weight > 0 for weight in weights)
    levels = (on - 1).bit_length()
    for count, weight in zip(draw_of(weights).counts(draws), weights, strict=True):
        assert abs(count - Fraction(draws * weight, sum(weights))) <= Fraction(levels, 2)


@given(weights=weights_of_sources, start=st.integers(0, 10**12), count=st.integers(0, 300))
def test_counts_and_draws_agree_at_any_depth(weights, start, count):
    draw = draw_of(weights)
    sources, numbers = draw(np.arange(start, start + count))
    before = draw.counts(start)
    assert [b + c for b, c in zip(before, counts_of(sources, len(weights)), strict=True)] == draw.counts(start + count)
    for source in set(sources.tolist()):
        mine = numbers[sources == source]
        assert mine.tolist() == list(range(before[source], before[source] + len(mine)))


@given(weights=weights_of_sources, count=st.integers(1, 10**9), data=st.data())
def test_the_draws_until_a_count_are_the_fewest_that_give_it(weights, count, data):
    source = data.draw(st.sampled_from([source for source, weight in enumerate(weights) if weight]))
    draw = draw_of(weights)
    draws = draw.until(source, count)
    assert draw.counts(draws)[source] == count
    assert draw.counts(draws - 1)[source] == count - 1


def test_decimal_shares_stay_exact_over_a_trillion_draws():
    counts = draw_of([Fraction("0.1"), Fraction("0.2"), Fraction("0.7")]).counts(10**12)
    assert counts == [10**11, 2 * 10**11, 7 * 10**11]


def test_shares_that_are_no_short_fraction_stay_within_a_few_millionths():
    weights = [Fraction(7919**4), Fraction(104729**3), Fraction(1299709**2)]
    counts = draw_of(weights).counts(10**12)
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count / 10**12 - weight / sum(weights)) < 1e-6


def test_a_source_without_weight_has_no_draws_to_wait_for():
    with pytest.raises(ValueError, match="source 1 has no weight"):
        draw_of((1, 0)).until(1, 1)
