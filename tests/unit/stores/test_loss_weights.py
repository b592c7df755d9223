"""Weights of targets: checked like everything else, read as float32, summed up over what is served."""

import numpy as np
import pyarrow as pa
import pytest

from dataserver.errors import StoreRefusedError
from dataserver.run_spec import LongRows
from dataserver.stores import LossMask

ROWS = [[1, 2, 3], [4, 5], []]
GOOD = [[0.5, 1.0, 0.0], [2.5, 0.1], []]
KINDS = [pa.float16(), pa.float32(), pa.float64()]


def weighted(table, weights, kind=None):
    return table(ROWS, loss_weight=pa.array(weights, pa.list_(kind or pa.float64())))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_read_as_float32(opened, one_file, table, form, kind):
    written = [np.array(row, dtype=kind.to_pandas_dtype()) for row in GOOD]
    with opened(one_file(weighted(table, written, kind), form, rows_per_block=2)) as store:
        assert store.has_weights
        for row, weights in zip(store, written, strict=True):
            assert row.loss_weight.dtype == np.float32
            np.testing.assert_array_equal(row.loss_weight, weights.astype(np.float32))


def test_whole_numbers_are_weights_too(opened, one_file, table, form):
    with opened(one_file(weighted(table, [[0, 1, 2], [3, 4], []], pa.int32()), form)) as store:
        assert [row.loss_weight.tolist() for row in store] == [[0, 1, 2], [3, 4], []]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([GOOD[0], None, []], "Row 1: loss_weight is null."),
        ([GOOD[0], [1.0], []], "Row 1: loss_weight length (1) must equal len(input_ids) (2)."),
        ([GOOD[0], [1.0, None], []], "Row 1: loss_weight holds a null."),
        ([GOOD[0], [1.0, -0.5], []], "Row 1: loss_weight holds -0.5"),
        ([GOOD[0], [float("nan"), 1.0], []], "Row 1: loss_weight holds nan"),
        ([GOOD[0], [float("inf"), 1.0], []], "Row 1: loss_weight holds inf"),
        ([GOOD[0], [1e39, 1.0], []], "Row 1: loss_weight holds 1e+39"),
    ],
)
def test_impossible_weights_are_refused_with_the_row(opened, one_file, table, weights, message):
    with pytest.raises(StoreRefusedError) as caught:
        opened(one_file(weighted(table, weights)))
    assert caught.value.message.startswith(message)
    assert caught.value.details["column"] == "loss_weight"


@pytest.mark.parametrize("kind", [pa.bool_(), pa.string()])
def test_other_types_are_refused_by_name(opened, one_file, table, kind):
    empty = pa.array([[], [], []], pa.list_(kind))
    with pytest.raises(StoreRefusedError, match="loss_weight"):
        opened(one_file(table(ROWS, loss_weight=empty)))


def reference(rows, masks, weights, begin, end):
    """What the targets of one sample weigh: those behind its first token."""
    span = range(begin + 1, end)
    return sum(float(np.float32(weights[at])) for at in span if masks is None or masks[at])


@pytest.mark.parametrize("max_length", [4, 9, 100])
def test_the_weights_of_a_cut_row_are_those_of_its_prefix(opened, one_file, table, form, max_length):
    random = np.random.default_rng(max_length)
    lengths = random.integers(0, 30, 50)
    rows = [random.integers(0, 9, n).tolist() for n in lengths]
    masks = [random.integers(0, 2, n).tolist() for n in lengths]
    weights = [random.random(n).tolist() for n in lengths]
    column = pa.array(weights, pa.list_(pa.float64()))
    with opened(one_file(table(rows, masks, loss_weight=column), form, rows_per_block=13)) as store:
        view = store.view(max_length)
        numbers = np.arange(view.rows)
        expected = [
            reference(rows[at], masks[at], weights[at], 0, min(len(rows[at]), max_length))
            for at in view.store_rows(numbers)
        ]
        np.testing.assert_allclose(view.weights(numbers), expected, rtol=1e-12)


def test_pieces_of_a_split_row_weigh_what_their_own_targets_do(opened, one_file, table):
    random = np.random.default_rng(7)
    rows = [random.integers(0, 9, n).tolist() for n in (3, 20, 5, 11)]
    weights = [random.random(len(row)).tolist() for row in rows]
    path = one_file(table(rows, loss_weight=pa.array(weights, pa.list_(pa.float32()))))
    with opened(path, LossMask.ALL) as store:
        view = store.view(5, LongRows.SPLIT)
        numbers = np.arange(view.rows)
        begins, lengths = view.offsets(numbers), view.lengths(numbers)
        expected = [
            reference(rows[at], None, weights[at], begin, begin + length)
            for at, begin, length in zip(view.store_rows(numbers), begins, lengths, strict=True)
        ]
        np.testing.assert_allclose(view.weights(numbers), expected, rtol=1e-12)


def test_a_row_whose_targets_all_weigh_nothing_is_kept(opened, one_file, table):
    with opened(one_file(weighted(table, [[0, 0, 0], [1, 1], []]))) as store:
        view = store.view(10)
        assert view.rows == 2
        assert view.weights(np.arange(2)).tolist() == [0.0, 1.0]
        assert view.targets(np.arange(2)).tolist() == [2, 1]
