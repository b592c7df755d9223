"""Every rule of admission, by its message; the numbered ones to the letter."""

import numpy as np
import pyarrow as pa
import pytest

from dataserver.errors import StoreRefusedError
from dataserver.stores import LossMask

GOOD = [[1, 2, 3], [4, 5], [6]]


def refused(opened, path, **options):
    with pytest.raises(StoreRefusedError) as caught:
        opened(path, **options)
    return caught.value


def test_a_window_form_mask_is_refused_by_its_length(opened, one_file, table, form):
    path = one_file(table(GOOD, [[1, 1, 1], [1], [1]]), form)
    error = refused(opened, path)
    assert error.message.startswith(
        "Row 1: loss_mask length (1) must equal len(input_ids) (2). Window-form masks are not supported; "
        "store the full-sequence mask."
    )
    assert error.details["row"] == "1"
    assert error.details["shard"] == path.name
    assert error.details["column"] == "loss_mask"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2, pa.int8()),
        (-1, pa.int8()),
        (2, pa.int64()),
        (0.5, pa.float32()),
        (float("nan"), pa.float64()),
        (None, pa.int8()),
    ],
)
def test_a_mask_value_other_than_0_and_1_is_refused(opened, one_file, table, form, value, kind):
    path = one_file(table(GOOD, [[1, 0, 1], [0, value], [1]], mask_type=pa.list_(kind)), form)
    assert refused(opened, path).message.startswith("Row 1: loss_mask must contain only 0s and 1s.")


@pytest.mark.parametrize("value", [0, None])
def test_padding_is_refused_by_the_attention_mask(opened, one_file, table, form, value):
    attention = pa.array([[1, 1, 1], [1, 1], [value]], pa.list_(pa.int8()))
    path = one_file(table(GOOD, attention_mask=attention), form)
    assert refused(opened, path).message.startswith(
        "Row 2: attention_mask contains 0s. Pretokenized rows must be stored unpadded "
        "(padding is applied at collation time)."
    )


def test_an_attention_mask_of_ones_is_accepted_and_one_of_another_length_is_not(opened, one_file, table):
    ones = pa.array([[True, True, True], [True, True], [True]])
    assert len(opened(one_file(table(GOOD, attention_mask=ones)))) == 3
    short = pa.array([[1, 1, 1], [1], [1]], pa.list_(pa.int8()))
    error = refused(opened, one_file(table(GOOD, attention_mask=short)))
    assert error.message.startswith("Row 1: attention_mask length (1) must equal len(input_ids) (2).")


def test_missing_columns_are_named_to_the_letter(opened, one_file, table, form):
    path = one_file(table(GOOD).drop_columns("input_ids"), form)
    assert refused(opened, path).message == (f"Pretokenized dataset at '{path}': missing required 'input_ids' column.")
    path = one_file(table(GOOD).drop_columns("loss_mask"), form)
    assert refused(opened, path).message == (
        f"Pretokenized dataset at '{path}': missing required 'loss_mask' column "
        "(full-sequence 0/1 mask, same length as input_ids)."
    )


def test_labels_without_a_mask_are_explained(opened, one_file, table):
    labels = pa.array([[-100, 2, 3], [4, 5], [6]])
    path = one_file(table(GOOD, labels=labels).drop_columns("loss_mask"))
    assert refused(opened, path).message.endswith(
        "derive the mask from them, 0 where the label is -100 and 1 elsewhere."
    )


def test_with_all_tokens_as_targets_no_mask_is_needed(opened, one_file, table, form):
    path = one_file(table(GOOD).drop_columns("loss_mask"), form)
    store = opened(path, LossMask.ALL)
    assert [row.loss_mask.tolist() for row in store] == [[1, 1, 1], [1, 1], [1]]
    view = store.view(2)
    assert view.dropped == {"no_target": 1}
    assert view.targets(np.arange(2)).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("rows", "kind", "text"),
    [
        ([[1], [2, None]], pa.int32(), "Row 1: input_ids holds a null."),
        ([[1], None], pa.int32(), "Row 1: input_ids is null."),
        ([[1], [2, -7]], pa.int8(), "Row 1: input_ids holds -7, a negative token id."),
        ([[1], [2, -7]], pa.int16(), "Row 1: input_ids holds -7, a negative token id."),
        ([[1], [2, -7]], pa.int64(), "Row 1: input_ids holds -7, a negative token id."),
        ([[1], [2, -7]], pa.float32(), "Row 1: input_ids holds -7.0, a negative token id."),
        ([[1], [2, 5_000_000_000]], pa.int64(), "Row 1: input_ids holds 5000000000, above 2147483647,"),
        ([[1], [2, 2**32 - 1]], pa.uint32(), "Row 1: input_ids holds 4294967295, above 2147483647,"),
        ([[1], [2, 2**63]], pa.uint64(), "Row 1: input_ids holds 9223372036854775808, above 2147483647,"),
        ([[1], [2, 1.5]], pa.float64(), "Row 1: input_ids holds 1.5, which is not a whole number."),
        ([[1], [2, float("nan")]], pa.float64(), "Row 1: input_ids holds nan, which is not a whole number."),
        ([[1], [2, float("inf")]], pa.float64(), "Row 1: input_ids holds inf, above 2147483647,"),
    ],
)
def test_a_value_that_is_no_token_id_is_refused(opened, one_file, table, form, rows, kind, text):
    masks = [[1], [1, 1]]
    path = one_file(table(rows, masks, ids_type=pa.list_(kind)), form)
    assert refused(opened, path).message.startswith(text)


def test_a_null_mask_is_refused(opened, one_file, table, form):
    path = one_file(table(GOOD, [[1, 1, 1], None, [1]]), form)
    assert refused(opened, path).message.startswith("Row 1: loss_mask is null.")


def test_the_lowest_row_is_named_whatever_the_rule(opened, tmp_path, write, table, form):
    rows = [[1, 2]] * 40
    masks = [[1, 1] for _ in rows]
    masks[23] = [1, 3]
    rows[31] = [1, -1]
    masks[35] = [1]
    directory = tmp_path / "store"
    directory.mkdir()
    for number in range(4):
        part = slice(number * 10, number * 10 + 10)
        write(directory / f"chunk-{number}", table(rows[part], masks[part]), form, rows_per_block=3)
    error = refused(opened, directory)
    assert error.message.startswith("Row 23: loss_mask must contain only 0s and 1s.")
    suffix = "parquet" if form == "parquet" else "arrow"
    unit = "row group" if form == "parquet" else "record batch"
    assert f"(shard 'chunk-2.{suffix}', {unit} 1, row 3 of the shard, column 'loss_mask')" in error.message
    assert error.details == {
        "row": "23", "shard": f"chunk-2.{suffix}", "shard_row": "3", "block": "1", "column": "loss_mask",
    }  # fmt: skip


def test_a_fault_in_a_later_piece_of_a_big_batch_is_found(opened, one_file, table):
    length = 1 << 19
    ids = pa.LargeListArray.from_arrays(
        pa.array(np.arange(11) * length), pa.array(np.zeros(10 * length, dtype=np.uint16))
    )
    mask = np.ones(10 * length, dtype=np.int8)
    mask[9 * length + 17] = 2
    masks = pa.LargeListArray.from_arrays(pa.array(np.arange(11) * length), pa.array(mask))
    path = one_file(pa.table({"input_ids": ids, "loss_mask": masks}))
    assert refused(opened, path).message.startswith("Row 9: loss_mask must contain only 0s and 1s.")


def test_a_store_without_usable_rows_is_refused_when_it_is_to_be_served(opened, one_file, table, form):
    path = one_file(table([[], [5], [1, 2]], [[], [1], [1, 0]]), form)
    with pytest.raises(StoreRefusedError) as caught:
        opened(path).view(8)
    assert caught.value.message.startswith(f"Pretokenized dataset at '{path}' produced 0 usable examples.")
    assert "1 empty, 2 no_target" in caught.value.message


def test_a_token_at_or_above_the_vocabulary_is_refused_by_its_first_row(opened, one_file, table, form):
    store = opened(one_file(table([[1, 2], [7, 1], [9, 9]]), form))
    assert (store.max_token, store.max_token_row) == (9, 2)
    store.check_vocab(10)
    with pytest.raises(StoreRefusedError, match=r"Row 1: input_ids holds 7, at or above vocab_size = 7\."):
        store.check_vocab(7)


def test_the_wire_width_is_chosen_over_all_shards(opened, tmp_path, write, table):
    for name, top, width in (("narrow", 65535, 2), ("wide", 65536, 4)):
        directory = tmp_path / name
        directory.mkdir()
        write(directory / "a", table([[1, 2]], ids_type=pa.list_(pa.int64())), "parquet")
        write(directory / "b", table([[1, top]], ids_type=pa.list_(pa.uint32())), "parquet")
        store = opened(directory)
        assert store.token_bytes == width
        assert store[1].input_ids.tolist() == [1, top]
