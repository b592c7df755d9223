"""Weighted sources: shares as asked, in samples or in tokens, and each source goes through its own rows in turn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.errors import InvalidSpecError
from dataserver.sampling.order import Place
from dataserver.weighting import Stopping


def rows_of(order, source, count, place=None):
    samples = order.samples(place or Place(), count)
    return samples.row[samples.source == source].tolist()


def test_a_source_goes_through_all_of_its_rows_again_and_again_in_other_orders(order_of, rows):
    order = order_of([rows(13), rows(1000)], [1, 1])
    drawn = rows_of(order, 0, 10 * 26)
    rounds = [drawn[begin : begin + 13] for begin in range(0, 130, 13)]
    assert all(sorted(one) == list(range(13)) for one in rounds)
    assert len({tuple(one) for one in rounds}) == 10


def test_sources_go_on_over_the_end_of_an_epoch_of_the_mixture(order_of, rows):
    order = order_of([rows(10), rows(30)], [1, 1], stopping="first_exhausted")
    assert order.epoch_size < 21
    drawn = rows_of(order, 1, 3 * order.epoch_size)
    assert len(set(drawn[:25])) == 25


def test_sequential_sources_come_in_store_order(order_of, rows):
    order = order_of([rows(5), rows(4)], [1, 1], shuffle="sequential")
    assert rows_of(order, 0, 14)[:7] == [0, 1, 2, 3, 4, 0, 1]
    assert rows_of(order, 1, 14)[:6] == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("stopping", Stopping)
def test_a_weight_of_0_turns_a_source_off_and_changes_nothing_for_the_others(order_of, rows, stopping):
    with_it = order_of([rows(20), rows(9), rows(30)], [3, 0, 1], stopping=stopping)
    without = order_of([rows(20), rows(30)], [3, 1], stopping=stopping, names=["store-0", "store-2"])
    assert with_it.epoch_size == without.epoch_size
    a, b = with_it.samples(Place(), 100), without.samples(Place(), 100)
    assert np.array_equal(a.row, b.row)
    assert np.array_equal(a.source, b.source * 2)


def test_with_replacement_rows_are_drawn_independently_and_evenly(order_of, rows):
    order = order_of([rows(100), rows(300)], [1, 1], stopping="with_replacement")
    assert order.epoch_size == 400
    drawn = np.bincount(rows_of(order, 0, 200_000), minlength=100)
    assert drawn.sum() == 100_000
    # Of 100 cells with mean 1000; chi-square of 99 degrees of freedom is below 170 but for 1 in 10^5.
    assert 50 < ((drawn - 1000) ** 2 / 1000).sum() < 170
    assert len(set(rows_of(order, 0, 200))) < 80


@given(weights=st.lists(st.integers(1, 50), min_size=2, max_size=6), epochs=st.integers(1, 5))
def test_token_shares_are_exact_when_every_source_ends_an_epoch_of_its_own(order_of, rows, weights, epochs):
    # Lengths are such that the draws of an epoch are whole epochs of each source.
    sizes = [12 * weight for weight in weights]
    means = [3 + 2 * number for number in range(len(weights))]
    tokens = [size * mean for size, mean in zip(sizes, means, strict=True)]
    sources = [rows(size, tokens=count) for size, count in zip(sizes, tokens, strict=True)]
    shares = [weight * mean for weight, mean in zip(weights, means, strict=True)]
    order = order_of(sources, shares, weight_unit="tokens")
    place = order.moved(Place(), epochs * order.epoch_size)
    drawn = [count * mean for count, mean in zip(order.drawn(place).values(), means, strict=True)]
    for got, share in zip(drawn, shares, strict=True):
        assert got / sum(drawn) == pytest.approx(share / sum(shares), rel=0.1)


def test_realised_token_shares_stay_within_the_error_that_is_promised(order_of, rows):
    random = np.random.default_rng(3)
    lengths = [np.minimum(random.lognormal(mu, 1, 20_000), 4096).astype(int) + 2 for mu in (4, 6, 7.5)]
    sources = [rows(len(of), tokens=int(of.sum())) for of in lengths]
    order = order_of(sources, [0.5, 0.3, 0.2], weight_unit="tokens")
    samples = order.samples(Place(), 50_000)
    drawn = [lengths[source][samples.row[samples.source == source]] for source in range(3)]
    tokens = np.array([of.sum() for of in drawn])
    shares = tokens / tokens.sum()
    for source, want in enumerate((0.5, 0.3, 0.2)):
        deviation = np.std(lengths[source]) / np.mean(lengths[source]) / len(drawn[source]) ** 0.5
        assert abs(shares[source] / want - 1) < 4 * deviation + 0.01


def test_sample_shares_would_have_given_other_token_shares(order_of, rows):
    sources = [rows(1000, tokens=10_000), rows(1000, tokens=1_000_000)]
    by_samples = order_of(sources, [1, 1]).drawn(Place(epoch=1))
    by_tokens = order_of(sources, [1, 1], weight_unit="tokens").drawn(Place(epoch=1))
    assert list(by_samples.values()) == [1000, 1000]
    assert by_tokens["store-1"] == 1000
    assert by_tokens["store-0"] == pytest.approx(100_000, abs=51)


def test_shares_of_tokens_that_nobody_knows_are_refused(order_of, rows):
    with pytest.raises(InvalidSpecError, match="source 'store-1': how long its rows are is not known"):
        order_of([rows(5), rows(5, tokens=0)], [1, 1], weight_unit="tokens")
    assert order_of([rows(5), rows(5, tokens=0)], [1, 0], weight_unit="tokens").epoch_size == 5


def test_a_source_that_goes_on_does_so_wherever_it_is_listed(order_of, rows):
    first = order_of([rows(50), rows(70)], [1, 1])
    place = first.moved(Place(), 61)
    alone = order_of([rows(50), rows(70)], [1, 1])
    expected = rows_of(alone, 1, 40, place)
    later = order_of([rows(70), rows(30)], [1, 1], stage=1, names=["store-1", "new"])
    begin = later.begin(0, first.drawn(place))
    assert begin.source_positions == (30, 0)
    assert rows_of(later, 0, 40, begin) == expected


def test_without_replacement_a_later_stage_begins_each_source_anew(order_of, rows):
    order = order_of([rows(50), rows(70)], [1, 1], stage=1, stopping="all_exhausted_without_replacement")
    begin = order.begin(2, {"store-0": 31, "store-1": 140})
    assert begin == Place(epoch=2, source_positions=(50, 140))
    assert sorted(rows_of(order, 0, 120, begin)) == list(range(50))


def test_a_billion_rows_are_sought_without_touching_those_before(order_of, rows):
    order = order_of([rows(10**9), rows(10**8), rows(3)], [5, 3, 1], weight_unit="samples")
    last = Place(epoch=10**6, position=order.epoch_size - 1)
    samples = order.samples(last, 1000)
    assert len(samples) == 1000
    assert np.bincount(samples.source).tolist() == pytest.approx([556, 333, 111], abs=2)
