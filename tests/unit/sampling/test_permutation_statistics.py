"""The permutation looks like one drawn at random.

Seeds are fixed, so nothing here flakes: a statistic is either within its bound or the code
changed. Bounds are standard scores; by chance alone one of some hundred scores exceeds 3, and
none comes near 4.5. A network of 2 or 3 rounds, or without its xor-shift, is off by tens.
"""

import itertools
import math

import numpy as np
import pytest

from dataserver.sampling.permutation import Permutation

BOUND = 4.5
SIZES = [1000, 1023, 1024, 1031, 4096, 10_007, 65_536]


def chi_squared_score(counts, expected):
    """Standard score of a chi-squared statistic (Wilson and Hilferty's cube root)."""
    counts = np.asarray(counts, dtype=np.float64).ravel()
    freedom = counts.size - 1
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


def epochs(size, count, positions=None, seed=11):
    asked = np.arange(size) if positions is None else positions
    return np.stack([Permutation(size, seed, epoch)(asked) for epoch in range(count)])


def grid_score(first, second, size, cells=16):
    counts, _, _ = np.histogram2d(first, second, bins=cells, range=[[0, size], [0, size]])
    edges = np.diff(np.ceil(np.linspace(0, size, cells + 1)))
    return chi_squared_score(counts, (np.outer(edges, edges) * (first.size / size**2)).ravel())


def correlation_score(first, second):
    return float(np.corrcoef(first, second)[0, 1]) * math.sqrt(first.size)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_tiny_epochs_take_all_their_orders_equally_often(size):
    number = {order: index for index, order in enumerate(itertools.permutations(range(size)))}
    each = 40
    orders = epochs(size, each * len(number)).tolist()
    counts = np.bincount([number[tuple(order)] for order in orders], minlength=len(number))
    assert abs(chi_squared_score(counts, each)) < BOUND


@pytest.mark.parametrize("size", SIZES)
def test_each_position_holds_any_row_equally_often_over_epochs(size):
    positions = np.array([0, 1, 2, size // 2, size - 2, size - 1])
    rows = epochs(size, 3000, positions)
    for column in rows.T:
        counts, edges = np.histogram(column, bins=50, range=(0, size))
        expected = np.diff(np.ceil(edges)) * (len(column) / size)
        assert abs(chi_squared_score(counts, expected)) < BOUND


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lag", [1, 2, 32])
def test_neighbours_are_not_correlated(size, lag):
    rows = epochs(size, 60)
    first, second = rows[:, :-lag].ravel(), rows[:, lag:].ravel()
    # Drawing without replacement makes rows of one epoch repel each other by 1 / (size - 1).
    assert abs(correlation_score(first, second) + math.sqrt(first.size) / (size - 1)) < BOUND


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lag", [1, 3, 64])
def test_pairs_of_neighbours_fill_the_plane_evenly(size, lag):
    rows = epochs(size, 40)
    assert grid_score(rows[:, :-lag].ravel(), rows[:, lag:].ravel(), size) < BOUND


@pytest.mark.parametrize("size", SIZES)
def test_steps_between_neighbours_are_of_any_width(size):
    steps = np.diff(epochs(size, 60), axis=1).ravel() % size
    counts = np.bincount(steps, minlength=size)[1:]
    groups = np.array_split(counts, 97)
    expected = np.array([len(group) for group in groups]) * (steps.size / (size - 1))
    assert abs(chi_squared_score([group.sum() for group in groups], expected)) < BOUND


@pytest.mark.parametrize("size", SIZES)
def test_rows_do_not_remember_their_position(size):
    rows = epochs(size, 40)
    positions = np.broadcast_to(np.arange(size), rows.shape)
    assert abs(grid_score(positions.ravel(), rows.ravel(), size)) < BOUND
    assert abs(correlation_score(positions.ravel(), rows.ravel())) < BOUND


@pytest.mark.parametrize("size", SIZES)
def test_epochs_know_nothing_of_each_other(size):
    rows = epochs(size, 41)
    assert abs(grid_score(rows[:-1].ravel(), rows[1:].ravel(), size)) < BOUND
    assert abs(correlation_score(rows[:-1].ravel(), rows[1:].ravel())) < BOUND


@pytest.mark.parametrize("size", SIZES)
def test_seeds_know_nothing_of_each_other(size):
    rows = np.stack([Permutation(size, seed, 0)(np.arange(size)) for seed in range(41)])
    assert abs(grid_score(rows[:-1].ravel(), rows[1:].ravel(), size)) < BOUND
    assert abs(correlation_score(rows[:-1].ravel(), rows[1:].ravel())) < BOUND


@pytest.mark.parametrize("size", SIZES[:-1])
def test_one_row_an_epoch_stays_in_place_on_average(size):
    count = 300
    fixed = np.sum(epochs(size, count) == np.arange(size), axis=1)
    assert abs(fixed.mean() - 1) < BOUND / math.sqrt(count)
    assert 0.6 < fixed.var() < 1.5


def test_a_batch_is_a_fair_sample_of_sources_laid_end_to_end():
    """Variance of a batch's composition relative to a full shuffle's: 1, where windows of row groups give 17."""
    size, sources, batch = 100_000, 20, 500
    rows = np.concatenate([Permutation(size, 3, epoch)(np.arange(size)) for epoch in range(4)])
    source = (rows * sources // size).reshape(-1, batch)
    counts = np.stack([np.bincount(row, minlength=sources) for row in source])
    share = 1 / sources
    expected = batch * share * (1 - share) * (size - batch) / (size - 1)
    assert 0.9 < counts.var() / expected < 1.1


def test_blocks_of_a_billion_rows_are_fair_samples_too():
    size = 10**9
    for start in (0, 123_456_789, size - 50_000):
        rows = Permutation(size, 9, 1)(np.arange(start, start + 50_000))
        counts = np.histogram(rows, bins=100, range=(0, size))[0]
        assert abs(chi_squared_score(counts, 500)) < BOUND
        assert grid_score(rows[:-1], rows[1:], size) < BOUND
        assert abs(chi_squared_score(np.bincount(rows % 256, minlength=256), 50_000 / 256)) < BOUND
