"""How long an epoch of weighted sources is, and what each of them gets in it."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.errors import InvalidSpecError
from dataserver.sampling.schedule import Schedule
from dataserver.weighting import Stopping

FIRST, ALL = Stopping.FIRST_EXHAUSTED, Stopping.ALL_EXHAUSTED
ONCE, REPLACED = Stopping.ALL_EXHAUSTED_WITHOUT_REPLACEMENT, Stopping.WITH_REPLACEMENT

sources_with_rows = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=7)


def schedule_of(sizes, weights, stopping):
    names = [f"store-{number}" for number in range(len(sizes))]
    return Schedule(names, sizes, [Fraction(weight) for weight in weights], stopping)


def drawn(schedule):
    sources, numbers = schedule(0, schedule.size)
    return list(zip(sources.tolist(), numbers.tolist(), strict=True))


@pytest.mark.parametrize(
    ("sizes", "weights", "stopping", "size", "counts"),
    [
        ((10, 10), (1, 1), FIRST, 19, (10, 9)),
        ((2, 6, 2), (".2", ".6", ".2"), FIRST, 8, (2, 5, 1)),
        ((2, 6, 2), (".2", ".6", ".2"), ALL, 10, (2, 6, 2)),
        ((2, 6, 2), (".2", ".6", ".2"), ONCE, 10, (2, 6, 2)),
        ((2, 6, 2), (".2", ".6", ".2"), REPLACED, 10, (2, 6, 2)),
        ((1, 100), (1, 1), ALL, 200, (100, 100)),
        ((1, 100), (1, 1), FIRST, 1, (1, 0)),
        ((1, 100), (1, 1), ONCE, 101, (1, 100)),
        ((5, 100), (1, 0), ALL, 5, (5, 0)),
        ((5, 100), (1, 0), REPLACED, 5, (5, 0)),
        ((7,), ("0.25",), FIRST, 7, (7,)),
        ((0, 2, 1), (1, 1, 1), ONCE, 3, (0, 2, 1)),
        ((2, 0, 1, 0), (1, 1, 1, 1), ONCE, 3, (2, 0, 1, 0)),
    ],
)
def test_the_length_of_an_epoch_is_known_beforehand(sizes, weights, stopping, size, counts):
    schedule = schedule_of(sizes, weights, stopping)
    assert (schedule.size, schedule.counts) == (size, counts)


@given(sources=sources_with_rows)
def test_the_first_exhausted_source_ends_an_epoch_with_its_last_row(sources):
    sizes, weights = zip(*sources, strict=True)
    schedule = schedule_of(sizes, weights, FIRST)
    assert all(count <= size for count, size in zip(schedule.counts, sizes, strict=True))
    last, number = drawn(schedule)[-1]
    assert number == sizes[last] - 1


@given(sources=sources_with_rows)
def test_all_sources_are_exhausted_and_no_draw_is_made_after_that(sources):
    sizes, weights = zip(*sources, strict=True)
    schedule = schedule_of(sizes, weights, ALL)
    assert all(count >= size for count, size in zip(schedule.counts, sizes, strict=True))
    last, number = drawn(schedule)[-1]
    assert number == sizes[last] - 1


@given(sources=sources_with_rows, empty=st.integers(0, 7))
def test_without_replacement_every_row_comes_once_wherever_empty_sources_stand(sources, empty):
    sources = [*sources[:empty], (0, 3), *sources[empty:]]
    sizes, weights = zip(*sources, strict=True)
    schedule = schedule_of(sizes, weights, ONCE)
    assert sorted(drawn(schedule)) == [(source, row) for source, size in enumerate(sizes) for row in range(size)]


def test_sources_that_are_left_go_on_by_their_weights():
    schedule = schedule_of((10, 300, 100), (2, 3, 1), ONCE)
    sources, _ = schedule(30, 390)
    assert np.count_nonzero(sources == 1) == pytest.approx(270, abs=1)
    assert schedule.counts_before(410) == (10, 300, 100)


@given(sources=sources_with_rows, stopping=st.sampled_from(Stopping), data=st.data())
def test_where_an_epoch_is_cut_changes_nothing(sources, stopping, data):
    sizes, weights = zip(*sources, strict=True)
    schedule = schedule_of(sizes, weights, stopping)
    begin = data.draw(st.integers(0, schedule.size))
    end = data.draw(st.integers(begin, schedule.size))
    part, numbers = schedule(begin, end)
    assert list(zip(part.tolist(), numbers.tolist(), strict=True)) == drawn(schedule)[begin:end]
    counted = np.bincount([source for source, _ in drawn(schedule)[:begin]], minlength=len(sizes))
    assert schedule.counts_before(begin) == tuple(counted.tolist())


@pytest.mark.parametrize("stopping", [FIRST, ALL, REPLACED])
def test_a_weight_on_a_source_without_rows_is_an_impossible_ask(stopping):
    with pytest.raises(InvalidSpecError, match="source 'store-1' has a weight but no row") as caught:
        schedule_of((3, 0, 2), (1, 1, 1), stopping)
    assert caught.value.details["store"] == "store-1"


@pytest.mark.parametrize("stopping", Stopping)
def test_sources_none_of_which_has_a_row_are_refused(stopping):
    with pytest.raises(InvalidSpecError, match="keeps a row: store-0, store-1"):
        schedule_of((0, 5), (1, 0), stopping)


def test_a_share_below_what_draws_resolve_is_refused_with_the_share():
    with pytest.raises(InvalidSpecError, match=r"'store-1' is 1e-07 of all.*9.54e-07"):
        schedule_of((10, 10), (1, Fraction(1, 10**7)), ALL)


def test_an_epoch_that_would_never_end_is_refused():
    with pytest.raises(InvalidSpecError, match=r"an epoch would have \d+ samples"):
        schedule_of((10, 2**30), (999_999, 2), ALL)


@pytest.mark.parametrize("stopping", Stopping)
def test_sources_far_above_2_to_the_24_rows_are_exact(stopping):
    sizes = (2**36, 2**35, 2**20)
    schedule = schedule_of(sizes, (4, 2, 1), stopping)
    part, numbers = schedule(schedule.size - 1000, schedule.size)
    before, after = schedule.counts_before(schedule.size - 1000), schedule.counts
    assert [int(np.count_nonzero(part == source)) for source in range(3)] == [
        b - a for a, b in zip(before, after, strict=True)
    ]
    assert numbers.max() == max(after) - 1
