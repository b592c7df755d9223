"""The permutation is a bijection, a pure function of (size, seed, epoch), and needs no memory."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.errors import InvalidSpecError, OutOfRangeError
from dataserver.sampling.permutation import MAX_SIZE, Permutation

# A change of any of these numbers is a change of ORDER_VERSION (see planning.fingerprint).
GOLDEN = [
    ((10, 0, 0), [0, 1, 2, 9], [4, 1, 0, 5]),
    ((1000, 7, 3), [0, 1, 2, 999], [177, 297, 590, 498]),
    ((1024, 7, 3), [0, 1, 2, 1023], [305, 92, 600, 220]),
    ((10**9, 2**63 - 1, 12), [0, 1, 2, 10**9 - 1], [526052338, 589604203, 795899552, 303851320]),
    ((2**40 - 1, 42, 0), [0, 1, 2**39, 2**40 - 2], [191098637631, 814742893332, 923687003075, 941828615319]),
]


@pytest.mark.parametrize(("key", "positions", "expected"), GOLDEN)
def test_known_positions_hold_known_rows(key, positions, expected):
    assert Permutation(*key)(np.array(positions)).tolist() == expected


@given(size=st.integers(0, 3000), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 2**63 - 1))
def test_every_row_comes_once(size, seed, epoch):
    rows = Permutation(size, seed, epoch)(np.arange(size))
    assert rows.dtype == np.int64
    assert np.array_equal(np.sort(rows), np.arange(size))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 1023, 1024, 1025, 65_535, 65_536, 65_537, 1_000_000])
def test_sizes_around_squares_and_limits_are_permuted(size):
    assert np.array_equal(np.sort(Permutation(size, 1, 1)(np.arange(size))), np.arange(size))


@given(
    size=st.integers(1, MAX_SIZE - 1),
    seed=st.integers(0, 2**63 - 1),
    positions=st.lists(st.integers(0, MAX_SIZE), min_size=1, max_size=50, unique=True),
)
def test_huge_permutations_stay_in_range_and_never_collide(size, seed, positions):
    asked = np.unique(np.array(positions, dtype=np.int64) % size)
    rows = Permutation(size, seed, 0)(asked)
    assert rows.min() >= 0
    assert rows.max() < size
    assert len(np.unique(rows)) == len(asked)


def test_a_position_does_not_depend_on_what_is_asked_with_it():
    permutation = Permutation(12_345, 5, 2)
    whole = permutation(np.arange(12_345))
    assert permutation(np.array([4_000])).tolist() == [whole[4_000]]
    assert np.array_equal(permutation(np.arange(100, 90, -1)), whole[100:90:-1])


@pytest.mark.parametrize("other", [(1000, 7, 4), (1000, 8, 3), (1001, 7, 3)])
def test_size_seed_and_epoch_each_change_the_order(other):
    positions = np.arange(1000)
    assert np.mean(Permutation(1000, 7, 3)(positions) == Permutation(*other)(positions)) < 0.01


@pytest.mark.parametrize("position", [-1, 10, 2**62])
def test_positions_outside_are_refused_by_name(position):
    with pytest.raises(OutOfRangeError, match=f"position {position} is outside of an epoch of 10 samples"):
        Permutation(10, 0, 0)(np.array([3, position]))


@pytest.mark.parametrize("size", [-1, MAX_SIZE, 2**62])
def test_sizes_that_the_arithmetic_cannot_hold_are_refused(size):
    with pytest.raises(InvalidSpecError, match=str(size)):
        Permutation(size, 0, 0)


def test_no_memory_grows_with_the_number_of_rows():
    positions = np.arange(1000)
    Permutation(10, 0, 0)(np.arange(10))
    tracemalloc.start()
    Permutation(10**12, 0, 0)(positions)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000
