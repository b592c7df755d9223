"""What holds for every order: where it is cut changes nothing, and a place says all that is needed to go on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.errors import InvalidSpecError, OutOfRangeError
from dataserver.sampling.order import Place
from dataserver.weighting import Stopping

ORDERS = [{"shuffle": "sequential"}, {"shuffle": "full"}, {"shuffle": "block", "block_window": 3}] + [
    {"weights": True, "shuffle": shuffle, "stopping": stopping}
    for stopping in Stopping
    for shuffle in ("full", "block", "sequential")
    if shuffle == "full" or stopping is not Stopping.WITH_REPLACEMENT
]
ONCE = Stopping.ALL_EXHAUSTED_WITHOUT_REPLACEMENT
kinds = st.sampled_from(ORDERS)
sources_of_rows = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=5)


def made(order_of, rows, sources, kind, **more):
    fields = dict(kind)
    weights = [weight for _, weight in sources] if fields.pop("weights", False) else None
    return order_of([rows(count) for count, _ in sources], weights, **fields, **more)


@given(kind=kinds, sources=sources_of_rows, cuts=st.lists(st.integers(0, 70), max_size=6))
def test_cut_anywhere_it_is_the_same_order(order_of, rows, pairs, kind, sources, cuts):
    order = made(order_of, rows, sources, kind)
    whole = pairs(order.samples(Place(), sum(cuts)))
    place, parts = Place(), []
    for count in cuts:
        parts += pairs(made(order_of, rows, sources, kind).samples(place, count))
        place = order.moved(place, count)
    assert parts == whole
    assert order.moved(Place(), sum(cuts)) == place


@given(kind=kinds, sources=sources_of_rows, epoch=st.integers(0, 9), count=st.integers(0, 200))
def test_what_is_drawn_is_counted_at_every_place(order_of, rows, kind, sources, epoch, count):
    order = made(order_of, rows, sources, kind)
    start = Place(epoch=epoch)
    samples = order.samples(start, count)
    before, after = order.drawn(start), order.drawn(order.moved(start, count))
    counted = np.bincount(samples.source, minlength=len(sources)).tolist()
    assert [after[name] - before[name] for name in before] == (counted if "weights" in kind else [])


@given(kind=kinds, sources=sources_of_rows, count=st.integers(0, 200), data=st.data())
def test_an_order_that_follows_another_goes_on_from_any_place(order_of, rows, pairs, kind, sources, count, data):
    names = [f"store-{number}" for number in range(len(sources))]
    drawn = {name: data.draw(st.integers(0, 2**50)) for name in names}
    order = made(order_of, rows, sources, kind, stage=1)
    begin = order.begin(3, drawn)
    part = data.draw(st.integers(0, count))
    middle = order.moved(begin, part)
    assert pairs(order.samples(begin, part)) + pairs(order.samples(middle, count - part)) == pairs(
        order.samples(begin, count)
    )
    assert order.moved(middle, count - part) == order.moved(begin, count)


@given(sources=sources_of_rows, epoch=st.integers(0, 99))
@pytest.mark.parametrize("kind", [kind for kind in ORDERS if kind.get("stopping", ONCE) == ONCE])
def test_every_row_comes_once_an_epoch(order_of, rows, pairs, kind, sources, epoch):
    order = made(order_of, rows, sources, kind)
    found = pairs(order.samples(Place(epoch=epoch), order.epoch_size))
    assert sorted(found) == [(source, row) for source, (count, _) in enumerate(sources) for row in range(count)]


@given(kind=kinds, sources=sources_of_rows, epoch=st.integers(0, 9))
def test_an_epoch_takes_of_each_source_what_was_said_before(order_of, rows, kind, sources, epoch):
    order = made(order_of, rows, sources, kind)
    samples = order.samples(Place(epoch=epoch), order.epoch_size)
    assert tuple(np.bincount(samples.source, minlength=len(sources)).tolist()) == order.epoch_counts
    assert sum(order.epoch_counts) == order.epoch_size
    assert ((samples.row >= 0) & (samples.row < np.array(order.sizes)[samples.source])).all()


@given(kind=kinds, sources=sources_of_rows, beyond=st.integers(0, 3))
def test_a_place_outside_of_an_epoch_is_refused(order_of, rows, kind, sources, beyond):
    order = made(order_of, rows, sources, kind)
    with pytest.raises(OutOfRangeError, match=f"not in an epoch of {order.epoch_size} samples"):
        order.samples(Place(position=order.epoch_size + beyond), 1)


@pytest.mark.parametrize("kind", ORDERS)
def test_orders_of_2_to_the_40_rows_are_refused_at_once(order_of, rows, kind):
    sources = [rows(2**39, blocks=(2**39,)), rows(2**39, blocks=(2**39,))]
    fields = {name: value for name, value in kind.items() if name != "weights"}
    with pytest.raises(InvalidSpecError, match=f"limit is {2**40 - 1}"):
        order_of([*sources, rows(2**40, blocks=(2**40,))], [1, 1, 1] if "weights" in kind else None, **fields)
