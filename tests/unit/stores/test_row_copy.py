"""What machine code copies is what numpy copies, and nothing moves it out of an array."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataserver.compiled.instructions import BLOCK_BYTES
from dataserver.errors import InternalError, StoreDamagedError
from dataserver.stores.row_copy import copy_bits, copy_rows, copy_rows_of, fill_rows, locate_rows

STORED = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
# Values that every dtype holds, so that a conversion is the same number.
MOST = 100

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(0, 5)), max_size=12)


def layout(drawn: list[tuple[int, int, int]]) -> tuple[np.ndarray[Any, Any], ...]:
    """Begins, lengths and places of rows, and positions in all; rows lie anywhere and go end to end, but for gaps."""
    begins, lengths, gaps = np.array(drawn, dtype=np.int64).reshape(-1, 3).T.copy()
    ends = np.cumsum(lengths + gaps)
    return begins, lengths, ends - lengths - gaps, int(ends[-1]) if len(ends) else 0


def copied_by_numpy(values, begins, lengths, out, at):
    for begin, length, to in zip(begins, lengths, at, strict=True):
        out[to : to + length] = values[begin : begin + length]


@settings(max_examples=200)
@given(
    drawn=spans,
    stored=st.sampled_from(STORED),
    wanted=st.sampled_from(["u1", "u2", "u4", "f4"]),
    read_only=st.booleans(),
    spare=st.integers(0, 3),
    seed=st.integers(0, 9),
)
def test_rows_are_copied_as_numpy_copies_them(drawn, stored, wanted, read_only, spare, seed):
    begins, lengths, at, size = layout(drawn)
    values = np.random.default_rng(seed).integers(0, MOST, 49 + spare).astype(stored)
    values.flags.writeable = not read_only
    out = np.full(size + spare, 7, dtype=wanted)
    expected = out.copy()
    copied_by_numpy(values, begins, lengths, expected, at)
    copy_rows(values, begins, lengths, out, at, what="")
    assert np.array_equal(out, expected)
    assert values.flags.writeable != read_only


@settings(max_examples=200)
@given(
    drawn=spans,
    arrays=st.integers(1, 4),
    stored=st.sampled_from(["u1", "u2", "u4", "f4", "i8"]),
    wanted=st.sampled_from(["same", "u4"]),
    seed=st.integers(0, 9),
)
def test_rows_of_several_arrays_are_copied_as_numpy_copies_them(drawn, arrays, stored, wanted, seed):
    begins, lengths, at, size = layout(drawn)
    random = np.random.default_rng(seed)
    values = [random.integers(0, MOST, 49 + number).astype(stored) for number in range(arrays)]
    which = random.integers(0, arrays, len(begins))
    out = np.full(size, 7, dtype=stored if wanted == "same" else wanted)
    expected = out.copy()
    for number, begin, length, to in zip(which, begins, lengths, at, strict=True):
        expected[to : to + length] = values[number][begin : begin + length]
    copy_rows_of(values, which, begins, lengths, out, at, what="")
    assert np.array_equal(out, expected)


@pytest.mark.parametrize(("begin", "length", "to"), [(5, 4, 0), (-1, 2, 0), (2**62, 1, 0)])
def test_a_row_outside_of_its_own_array_is_refused_though_another_would_hold_it(begin, length, to):
    values = [np.arange(20, dtype=np.uint32), np.arange(8, dtype=np.uint32)]
    out = np.zeros(12, dtype=np.uint32)
    row = [np.array([0, number], dtype=np.int64) for number in (1, begin, length, to)]
    with pytest.raises(StoreDamagedError, match=r"a\.parquet"):
        copy_rows_of(values, *row[:3], out, row[3], what="Shard 'a.parquet'")
    assert not out.any()


def test_a_row_that_does_not_fit_moves_nothing():
    values = [np.arange(20, dtype=np.uint32)] * 2
    out, one = np.zeros(4, dtype=np.uint32), np.ones(1, dtype=np.int64)
    with pytest.raises(InternalError, match="3 values do not fit at 2 of 4"):
        copy_rows_of(values, one, one, 3 * one, out, 2 * one, what="")
    assert not out.any()


@settings(max_examples=100)
@given(drawn=spans, seed=st.integers(0, 9))
def test_bits_become_bytes(drawn, seed):
    begins, lengths, at, size = layout(drawn)
    bits = np.random.default_rng(seed).integers(0, 2, 56, dtype=np.uint8)
    out, expected = np.full((2, size), 9, dtype=np.uint8)
    copied_by_numpy(bits, begins, lengths, expected, at)
    copy_bits(np.packbits(bits, bitorder="little"), begins, lengths, out, at, what="")
    assert np.array_equal(out, expected)


@settings(max_examples=50)
@given(drawn=spans, wanted=st.sampled_from(["u1", "f4"]))
def test_rows_are_filled_and_what_lies_between_them_is_left(drawn, wanted):
    _, lengths, at, size = layout(drawn)
    out, expected = np.full((2, size), 9, dtype=wanted)
    copied_by_numpy(np.ones(9), np.zeros_like(at), lengths, expected, at)
    fill_rows(1, lengths, out, at)
    assert np.array_equal(out, expected)


def test_rows_of_thousands_of_tokens_are_copied_whole():
    random = np.random.default_rng(3)
    lengths = random.integers(2000, 9000, 40)
    begins = random.integers(0, 91_000, 40)
    values = random.integers(0, 1 << 31, 100_000).astype("u4")
    at = np.cumsum(lengths) - lengths
    out, expected = np.zeros((2, int(lengths.sum())), dtype="u4")
    copied_by_numpy(values, begins, lengths, expected, at)
    copy_rows(values, begins, lengths, out, at, what="")
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("stored", ["u1", "u2", "u4", "f8"])
def test_rows_of_every_length_about_blocks_are_copied_whole_and_nothing_beside_them(stored):
    lengths = np.random.default_rng(4).permutation(5 * BLOCK_BYTES // 2)
    values = np.random.default_rng(5).integers(1, MOST, len(lengths) + 40).astype(stored)
    begins = np.arange(len(lengths)) % (len(values) - lengths + 1)
    begins[::3] = (len(values) - lengths)[::3]
    at = 1 + np.cumsum(lengths + 1) - (lengths + 1)
    out, expected = np.zeros((2, int((lengths + 1).sum()) + 1), dtype=stored)
    copied_by_numpy(values, begins, lengths, expected, at)
    copy_rows(values, begins, lengths, out, at, what="")
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("stored", ["u4", "i8", "f2"])
@pytest.mark.parametrize(
    ("begin", "length"), [(-1, 2), (9, 2), (10, 1), (2**62, 2**62), (-(2**62), 3), (0, -1), (2**63 - 1, 1)]
)
def test_a_row_outside_of_its_file_is_named_and_nothing_is_copied(stored, begin, length):
    values, out = np.ones(10, dtype=stored), np.zeros(8, dtype="u4")
    begins, lengths, at = np.array([[2, begin], [1, length], [0, 1]])
    kind = StoreDamagedError if length >= 0 and length < 8 else InternalError
    with pytest.raises(kind, match="here: " if kind is StoreDamagedError else "do not fit"):
        copy_rows(values, begins, lengths, out, at, what="here")
    assert not out.any()


def test_a_bit_outside_of_its_bitmap_is_not_read():
    place = np.array([15]), np.array([2]), np.zeros(2, dtype=np.uint8), np.array([0])
    with pytest.raises(StoreDamagedError, match="2 values from 15 on are not among its 16"):
        copy_bits(np.zeros(2, dtype=np.uint8), *place, what="mask")


@pytest.mark.parametrize("to", [-1, 7, 2**62])
def test_a_row_never_leaves_its_destination(to):
    out, one = np.zeros(8, dtype="u4"), np.array([0])
    with pytest.raises(InternalError, match=f"2 values do not fit at {to} of 8"):
        copy_rows(np.ones(10, dtype="u4"), one, np.array([2]), out, np.array([to]), what="")
    with pytest.raises(InternalError):
        fill_rows(1, np.array([2]), out, np.array([to]))
    assert not out.any()


@pytest.mark.parametrize("width", ["i4", "i8"])
def test_rows_are_found_through_the_offsets_of_their_block(width):
    offsets = np.array([-9, 0, 3, 5, -9, 0, 4], dtype=width)
    row_begins, offsets_at, values_at = np.array([0, 2, 4]), np.array([1, 5]), np.array([100, 200])
    place = offsets, offsets_at, values_at
    begins = locate_rows(np.array([3, 0, 1, 2]), row_begins, *place, size=0, what="")
    assert begins.tolist() == [204, 100, 103, 200]
    for row in (-1, 4, 2**62):
        with pytest.raises(StoreDamagedError, match=f"here: row {row} lies outside"):
            locate_rows(np.array([row]), row_begins, *place, size=0, what="here")
    with pytest.raises(StoreDamagedError, match="row 3 lies outside"):
        locate_rows(np.array([2, 3]), row_begins, offsets[:6], offsets_at, values_at, size=0, what="")


def test_rows_of_one_size_need_no_offsets():
    place = np.array([0, 2, 4]), None, np.array([0, 0]), np.array([100, 200])
    assert locate_rows(np.array([3, 0, 1, 2]), *place, size=7, what="").tolist() == [207, 100, 107, 200]
    with pytest.raises(StoreDamagedError):
        locate_rows(np.array([4]), *place, size=7, what="")
