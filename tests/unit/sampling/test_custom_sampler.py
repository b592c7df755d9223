"""A sampler that a server's operator installed decides the order, and is not taken at its word."""

import numpy as np
import pytest

from dataserver.errors import InvalidSpecError
from dataserver.run_spec import OrderSpec, Source
from dataserver.sampling.custom import CustomSampler
from dataserver.sampling.order import Place
from dataserver.streaming.samplers import sampler_of


def backwards(seed, epoch, positions, sizes):
    return sum(sizes) - 1 - positions


def sampler(function):
    return CustomSampler(name="mine", identity="mine 1.0", function=function)


@pytest.fixture
def order_by_sampler(order_of):
    def make(sources, function, weights=None):
        return order_of(sources, weights, shuffle="custom", sampler=sampler(function))

    return make


def test_its_rows_count_through_all_sources(order_by_sampler, rows, pairs):
    order = order_by_sampler([rows(2), rows(3)], backwards)
    assert pairs(order.samples(Place(), 7)) == [(1, 2), (1, 1), (1, 0), (0, 1), (0, 0), (1, 2), (1, 1)]


def test_of_weighted_sources_it_orders_each(order_by_sampler, rows):
    order = order_by_sampler([rows(2), rows(3)], backwards, [1, 1])
    samples = order.samples(Place(), 6)
    assert samples.row[samples.source == 1].tolist() == [2, 1, 0]
    assert samples.row[samples.source == 0].tolist() == [1, 0, 1]


def test_it_is_told_seed_epoch_positions_and_sizes(order_by_sampler, rows):
    told = []

    def listening(seed, epoch, positions, sizes):
        told.append((seed, epoch, positions.tolist(), sizes))
        return positions

    order_by_sampler([rows(2), rows(3)], listening).samples(Place(epoch=4, position=3), 3)
    assert told == [(7, 4, [3, 4], (2, 3)), (7, 4, [4], (2, 3)), (7, 5, [0], (2, 3)), (7, 5, [0], (2, 3))]


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda seed, epoch, positions, sizes: positions + 1, "epoch 0, position 4: row 5 is not in 0..4"),
        (lambda seed, epoch, positions, sizes: positions - 1, "epoch 0, position 0: row -1 is not in 0..4"),
        (lambda seed, epoch, positions, sizes: positions / 2, "5 positions gave float64"),
        (lambda seed, epoch, positions, sizes: positions[:1], "5 positions gave int64 of shape"),
        (lambda seed, epoch, positions, sizes: None, "5 positions gave object"),
        (lambda seed, epoch, positions, sizes: 1 // 0, "ZeroDivisionError"),
        (lambda seed, epoch, positions, sizes: positions - positions[0], "row 4 among 5 .*, and row 0 by itself"),
    ],
)  # fmt: skip
def test_what_it_gets_wrong_is_told_with_its_name_and_the_position(order_by_sampler, rows, function, fault):
    order = order_by_sampler([rows(2), rows(3)], function)
    with pytest.raises(InvalidSpecError, match=rf"sampler 'mine' \(mine 1\.0\): .*{fault}") as caught:
        order.samples(Place(), 5)
    assert caught.value.details["field"] == "sampler"


def test_what_it_does_to_the_positions_stays_with_it(order_by_sampler, rows):
    def writing(seed, epoch, positions, sizes):
        positions *= 0
        return positions

    assert order_by_sampler([rows(5)], writing).samples(Place(), 5).row.tolist() == [0] * 5


def write_distribution(folder, module, entries):
    package = folder / f"{module}-1.4.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.4\n")
    (package / "entry_points.txt").write_text("[dataserver.samplers]\n" + "\n".join(entries))
    (folder / f"{module}.py").write_text("def ordered(seed, epoch, positions, sizes):\n    return positions\n")


def named(name):
    return OrderSpec(sources=(Source(store="chat"),), max_length=8, shuffle="custom", sampler=name)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    write_distribution(
        tmp_path, "curriculum_orders", ["ordered = curriculum_orders:ordered", "gone = curriculum_orders:gone"]
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_an_installed_sampler_is_found_with_its_distribution_and_version():
    found = sampler_of(named("ordered"))
    assert (found.name, found.identity) == ("ordered", "curriculum_orders 1.4")
    assert found.function(0, 0, np.arange(3), (3,)).tolist() == [0, 1, 2]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "fault"),
    [("other", "'other' is installed 0 times on this server, which has gone, ordered"), ("gone", "cannot be imported")],
)
def test_a_sampler_that_is_not_there_is_refused_before_the_first_step(name, fault):
    with pytest.raises(InvalidSpecError, match=fault):
        sampler_of(named(name))


def test_other_orders_need_none():
    assert sampler_of(OrderSpec(sources=(Source(store="chat"),), max_length=8)) is None
