"""Faults that people met elsewhere, and that no rule of one form of store covers: see docs/hazards.md."""

import numpy as np
import pyarrow as pa
import pytest
from view_reading import tokens_of

from dataserver.errors import StoreRefusedError
from dataserver.stores import open_store
from dataserver.stores.ragged import ragged


def refusal(opened, path):
    with pytest.raises(StoreRefusedError) as caught:
        opened(path)
    return caught.value.message


@pytest.mark.parametrize("first", [None, [9, 9, 9]])
def test_rows_behind_a_null_or_a_longer_row_keep_their_values(first):
    column = ragged(pa.array([first, [1, 2], [3, 4]])[1:], shard="s", column="input_ids")
    flat, nulls = column.flat()
    assert (flat.tolist(), column.lengths.tolist(), nulls) == ([1, 2, 3, 4], [2, 2], None)


def test_rows_inside_of_a_struct_are_refused_by_its_type_and_not_looked_for(opened, one_file, form):
    """A null struct hides a list that is there: whoever looks inside serves a row that the store does not hold."""
    hidden = pa.StructArray.from_arrays(
        [pa.array([[1], [2], [3]])], names=["input_ids"], mask=pa.array([False, True, False])
    )
    message = refusal(opened, one_file(pa.table({"sample": hidden, "loss_mask": pa.array([[1], [1], [1]])}), form))
    assert "missing required 'input_ids' column" in message
    message = refusal(opened, one_file(pa.table({"input_ids": hidden, "loss_mask": pa.array([[1], [1], [1]])}), form))
    assert "column 'input_ids' has the type struct<input_ids: list<" in message


@pytest.mark.parametrize("token", [65_535, 65_536, 119_547, 151_643])
def test_tokens_around_16_bits_are_served_as_they_are(opened, one_file, table, form, token):
    view = opened(one_file(table([[1, token]], ids_type=pa.list_(pa.uint32())), form)).view(4)
    width = view.store.token_bytes
    assert width == (2 if token < 65_536 else 4)
    assert tokens_of(view, [0], width).tolist() == [1, token]


def test_no_token_stands_for_something_else(opened, one_file, table):
    """A separator of -1 stored without a sign is refused where it is no token, and a token like others where it is."""
    assert "input_ids holds -1, a negative token id" in refusal(opened, one_file(table([[5, -1, 6]])))
    wide = table([[5, 2**32 - 1, 6]], ids_type=pa.list_(pa.uint32()))
    assert "input_ids holds 4294967295, above 2147483647" in refusal(opened, one_file(wide))
    narrow = opened(one_file(table([[5, 65_535, 6]], ids_type=pa.list_(pa.uint16()))))
    assert narrow[0].input_ids.tolist() == [5, 65_535, 6]


@pytest.mark.parametrize("wide_first", [True, False])
def test_a_token_beyond_all_others_in_one_shard_is_found_at_admission_in_either_order(
    opened, tmp_path, write, table, form, wide_first
):
    store = tmp_path / "store"
    store.mkdir()
    names = ("a", "b") if wide_first else ("b", "a")
    write(store / names[0], table([[1], [2], [5_000_000_000]], ids_type=pa.list_(pa.int64())), form)
    write(store / names[1], table([[7, 8]]), form)
    row = 2 if wide_first else 3
    assert refusal(opened, store).startswith(f"Row {row}: input_ids holds 5000000000, above 2147483647")


def test_a_file_of_indices_without_its_state_is_refused(opened, tmp_path, write, table):
    """What `datasets` caches beside its data has the same suffix, and one column: `indices`."""
    store = tmp_path / "saved"
    store.mkdir()
    write(store / "data-00000-of-00001", table([[1, 2]]), "arrow_stream")
    write(store / "cache-5f", pa.table({"indices": pa.array([1, 0], pa.uint64())}), "arrow_stream")
    assert "lacks the column 'indices' that 'cache-5f.arrow' has" in refusal(opened, store)


def test_a_store_that_grows_while_it_is_admitted_is_refused(one_file, table, index_dir, form):
    path = one_file(table([[number, number] for number in range(100)]), form)

    def grow(done_bytes, total_bytes):
        with path.open("ab") as file:
            file.write(b"more")

    with pytest.raises(StoreRefusedError, match="changed while it was being read"):
        open_store(path, index_dir=index_dir, progress=grow)


def test_servers_with_indexes_of_their_own_serve_the_same_rows_under_one_name(tmp_path, one_file, table, form):
    path = one_file(table([[number] * (number % 5) for number in range(50)]), form, rows_per_block=7)
    first, second = (open_store(path, index_dir=tmp_path / name) for name in ("here", "there"))
    assert first.fingerprint == second.fingerprint
    rows = np.arange(first.view(3).rows)
    one, other = (store.view(3) for store in (first, second))
    assert one.store_rows(rows).tolist() == other.store_rows(rows).tolist()
    assert tokens_of(one, rows, 2).tolist() == tokens_of(other, rows, 2).tolist()
