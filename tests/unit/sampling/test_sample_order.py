"""A union of sources: every kept row of each comes once an epoch, at any size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.errors import InvalidSpecError, OutOfRangeError
from dataserver.run_spec import Shuffle
from dataserver.sampling.order import Place, Samples
from dataserver.sampling.union import plain_union

plain_shuffles = st.sampled_from([Shuffle.SEQUENTIAL, Shuffle.FULL])
sizes_of_sources = st.lists(st.integers(0, 40), min_size=1, max_size=6).map(tuple)


def pairs(samples):
    return list(zip(samples.source.tolist(), samples.row.tolist(), strict=True))


@given(sizes=sizes_of_sources, seed=st.integers(0, 2**63 - 1), shuffle=plain_shuffles, epoch=st.integers(0, 99))
def test_an_epoch_holds_every_row_of_every_source_once(sizes, seed, shuffle, epoch):
    order = plain_union(sizes, seed, shuffle)
    samples = order.samples(Place(epoch=epoch), order.epoch_size)
    assert (samples.source.dtype, samples.row.dtype) == (np.int32, np.int64)
    assert sorted(pairs(samples)) == [(source, row) for source, size in enumerate(sizes) for row in range(size)]


@given(sizes=sizes_of_sources, shuffle=plain_shuffles, data=st.data())
def test_any_stretch_is_that_stretch_of_the_epoch(sizes, shuffle, data):
    order = plain_union(sizes, 3, shuffle)
    start = data.draw(st.integers(0, order.epoch_size))
    stop = data.draw(st.integers(start, order.epoch_size))
    whole = pairs(order.samples(Place(epoch=1), order.epoch_size))
    assert pairs(order.samples(Place(epoch=1, position=start), stop - start)) == whole[start:stop]


def test_sequential_is_store_order_source_after_source_in_every_epoch():
    order = plain_union((0, 2, 0, 0, 3, 0), 7, Shuffle.SEQUENTIAL)
    expected = [(1, 0), (1, 1), (4, 0), (4, 1), (4, 2)]
    assert [pairs(order.samples(Place(epoch=epoch), 5)) for epoch in (0, 1, 5)] == [expected] * 3


def test_each_epoch_has_an_order_of_its_own():
    order = plain_union((60, 40), 7, Shuffle.FULL)
    orders = {tuple(pairs(order.samples(Place(epoch=epoch), 100))) for epoch in range(20)}
    assert len(orders) == 20


def test_empty_sources_change_nothing_but_the_numbers_of_the_others():
    plain = plain_union((3, 5), 7, Shuffle.FULL).samples(Place(epoch=2), 8)
    padded = plain_union((0, 3, 0, 5, 0), 7, Shuffle.FULL).samples(Place(epoch=2), 8)
    assert np.array_equal(padded.row, plain.row)
    assert np.array_equal(padded.source, np.array([1, 3])[plain.source])


def test_an_order_of_no_rows_has_empty_epochs():
    order = plain_union((0, 0), 7, Shuffle.FULL)
    assert order.epoch_size == 0
    assert len(order.samples(Place(), 0)) == 0


@pytest.mark.parametrize("position", [-1, 10, 11])
def test_positions_outside_of_the_epoch_are_refused_by_name(position):
    with pytest.raises(OutOfRangeError, match=f"position {position} is not in an epoch of 10"):
        plain_union((4, 6), 0, Shuffle.SEQUENTIAL).samples(Place(position=position), 1)


def test_a_stretch_goes_on_over_any_number_of_epochs():
    order = plain_union((4, 3), 7, Shuffle.FULL)
    whole = [pair for epoch in range(2, 6) for pair in pairs(order.samples(Place(epoch=epoch), 7))]
    assert pairs(order.samples(Place(epoch=2, position=5), 20)) == whole[5:25]


@pytest.mark.parametrize("shuffle", [Shuffle.BLOCK, Shuffle.CUSTOM])
def test_orders_that_need_more_than_sizes_are_not_taken_for_others(shuffle):
    with pytest.raises(InvalidSpecError, match=f"shuffle = {shuffle} cannot be made of sizes alone"):
        plain_union((4, 6), 0, shuffle)


def test_more_rows_than_a_permutation_holds_are_refused_at_once():
    with pytest.raises(InvalidSpecError, match=str(2**40)):
        plain_union((2**39, 2**39), 0, Shuffle.FULL)


def test_sources_above_2_to_the_32_rows_are_addressed_in_full():
    order = plain_union((2**36, 2**35), 1, Shuffle.FULL)
    samples = order.samples(Place(position=order.epoch_size - 2000), 2000)
    assert samples.row[samples.source == 0].max() > 2**35
    assert samples.row[samples.source == 1].max() < 2**35
    assert 0.27 < np.mean(samples.source == 1) < 0.40


def test_take_follows_the_indices():
    samples = Samples(np.array([0, 1, 2], dtype=np.int32), np.array([7, 8, 9]))
    assert pairs(samples.take(np.array([2, 0]))) == [(2, 9), (0, 7)]
