"""The cut: the largest prefix of whole samples, and nothing read beyond it that is not needed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.errors import InvalidSpecError
from dataserver.planning import cut
from dataserver.planning.cut import Stretch, cut_step
from dataserver.run_spec import BatchSpec, Shuffle
from dataserver.sampling.order import Place
from dataserver.sampling.union import plain_union


def stretch_of(table, *, max_epochs=1, epoch=0, position=0, shuffle=Shuffle.SEQUENTIAL):
    place = Place(epoch=epoch, position=position)
    return Stretch(plain_union(table.sizes, 0, shuffle), table, place=place, max_epochs=max_epochs)


def tokens(budget):
    return BatchSpec(step_tokens=budget, micro_batch_tokens=2**20)


def test_a_step_stops_before_the_sample_that_would_overflow(listed_table):
    stretch = stretch_of(listed_table([[4, 4, 4, 4, 4]]))
    assert [cut_step(stretch, 0, tokens(budget), 1) for budget in (4, 7, 8, 11, 12, 20, 10**15)] == [
        1,
        1,
        2,
        2,
        3,
        5,
        5,
    ]
    assert cut_step(stretch, 3, tokens(8), 1) == 5


@given(lengths=st.lists(st.integers(2, 50), min_size=1, max_size=600), budget=st.integers(50, 3000))
def test_no_step_is_over_budget_and_none_could_take_one_sample_more(listed_table, lengths, budget):
    stretch = stretch_of(listed_table([lengths]))
    start = 0
    while start < len(lengths):
        stop = cut_step(stretch, start, tokens(budget), 1)
        assert sum(lengths[start:stop]) <= budget
        assert stop == len(lengths) or sum(lengths[start : stop + 1]) > budget
        start = stop
    assert cut_step(stretch, start, tokens(budget), 1) == start


@given(count=st.integers(1, 50), rows=st.integers(1, 40))
def test_a_step_of_samples_counts_them_up_to_the_end(listed_table, count, rows):
    batch = BatchSpec(step_samples=count, micro_batch_tokens=2**20)
    assert cut_step(stretch_of(listed_table([[9] * rows])), 0, batch, 1) == min(count, rows)


def test_samples_are_read_over_the_end_of_epochs(hashed_table):
    order = plain_union((30, 20), 5, Shuffle.FULL)
    stretch = Stretch(order, hashed_table(30, 20), place=Place(epoch=2, position=45), max_epochs=None)
    stretch.read(105)
    samples, lengths = stretch.first(105)
    pieces = [
        order.samples(Place(epoch=2, position=45), 5),
        order.samples(Place(epoch=3), 50),
        order.samples(Place(epoch=4), 50),
    ]
    assert np.array_equal(samples.row, np.concatenate([piece.row for piece in pieces]))
    assert np.array_equal(samples.source, np.concatenate([piece.source for piece in pieces]))
    assert np.array_equal(lengths, hashed_table(30, 20).lengths(samples))


def test_what_is_read_does_not_depend_on_the_chunks(hashed_table):
    whole, bits = (stretch_of(hashed_table(10_000), shuffle=Shuffle.FULL) for _ in range(2))
    whole.read(3000)
    for count in (1, 7, 500, 1, 2491):
        bits.read(count)
    assert np.array_equal(whole.samples.row[:3000], bits.samples.row[:3000])
    assert np.array_equal(whole.lengths[:3000], bits.lengths[:3000])


@pytest.mark.parametrize("budget", [1_000, 100_000, 10_000_000])
def test_a_cut_reads_little_more_than_the_step(hashed_table, budget):
    table = hashed_table(10**9)
    stretch = stretch_of(table, position=10**8, shuffle=Shuffle.FULL)
    stop = cut_step(stretch, 0, tokens(max(budget, 1001)), 1)
    assert stop < table.read <= 1.3 * stop + 300


def test_a_budget_beyond_the_last_epoch_takes_what_is_there(hashed_table):
    assert cut_step(stretch_of(hashed_table(700), max_epochs=2), 0, tokens(10**12), 1) == 1400


def test_an_endless_step_is_refused_and_not_awaited(hashed_table):
    for batch in (tokens(10**12), BatchSpec(step_samples=10**9, micro_batch_tokens=2**20)):
        with pytest.raises(InvalidSpecError, match=f"more than {cut.MAX_PLANNED_SAMPLES} samples"):
            cut_step(stretch_of(hashed_table(700), max_epochs=None), 0, batch, 1)


def test_a_sample_above_the_budget_is_refused_with_the_numbers(listed_table):
    with pytest.raises(InvalidSpecError, match="a sample of 9 tokens exceeds step_tokens = 8"):
        cut_step(stretch_of(listed_table([[9, 2]])), 0, tokens(8), 1)


def test_positions_move_over_the_end_of_epochs():
    order = plain_union((6, 4), 0, Shuffle.SEQUENTIAL)
    places = [order.moved(Place(epoch=3, position=8), count) for count in (0, 1, 2, 3, 12, 25)]
    assert [(place.epoch, place.position) for place in places] == [(3, 8), (3, 9), (4, 0), (4, 1), (5, 0), (6, 3)]
