"""Stores that no writer of ours would leave: odd names, odd numbers, files laid end to end, types found late."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataserver.errors import StoreRefusedError
from dataserver.stores import Admission, open_store

BOTH = pytest.mark.parametrize("admission", list(Admission))


def rows_of(path, index_dir, admission=Admission.EAGER):
    return [row.input_ids.tolist() for row in open_store(path, index_dir=index_dir, admission=admission)]


@BOTH
@pytest.mark.parametrize("form", ["arrow_stream", "parquet"])
@pytest.mark.parametrize("where", [b"\xff\xfe.", b"\xff/a."])
def test_a_name_that_is_no_text_is_refused_by_it(tmp_path, write, table, index_dir, admission, form, where):
    written = write(tmp_path / "x", table([[1, 2]]), form)
    strange = tmp_path / "store" / os.fsdecode(where + os.fsencode(written.suffix[1:]))
    strange.parent.mkdir(parents=True)
    written.rename(strange)
    with pytest.raises(StoreRefusedError, match=r"'\\udcff.*is no UTF-8: rename it") as refusal:
        open_store(tmp_path / "store", index_dir=index_dir, admission=admission)
    assert refusal.value.message.encode()


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (pa.float16(), float("inf"), "inf, above 2147483647"),
        (pa.float32(), float("inf"), "inf, above 2147483647"),
        (pa.float32(), 2.0**31, "2147483648.0, above 2147483647"),
        (pa.float64(), 2.0**31, "2147483648.0, above 2147483647"),
        (pa.float16(), float("-inf"), "-inf, a negative token id"),
        (pa.float16(), float("nan"), "nan, which is not a whole number"),
    ],
)
def test_a_float_beyond_the_highest_token_is_refused_in_every_width(opened, one_file, table, kind, value, said):
    path = one_file(table([[1.0], [2.0, value]], ids_type=pa.list_(kind)))
    with pytest.raises(StoreRefusedError, match=rf"^Row 1: input_ids holds {said}"):
        opened(path)


@pytest.mark.parametrize(
    ("kind", "token"), [(pa.float16(), 2048), (pa.float32(), 2**31 - 128), (pa.float64(), 2**31 - 1)]
)
def test_the_highest_whole_floats_are_served(opened, one_file, table, kind, token):
    assert opened(one_file(table([[float(token)]], ids_type=pa.list_(kind))))[0].input_ids.tolist() == [token]


@BOTH
def test_row_groups_without_rows_stand_anywhere(tmp_path, table, index_dir, admission):
    found = table([[1, 2], [3, 4]])
    with pq.ParquetWriter(tmp_path / "a.parquet", found.schema) as writer:
        for part in (found.slice(0, 0), found.slice(0, 1), found.slice(0, 0), found.slice(1), found.slice(0, 0)):
            writer.write_table(part)
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 5
    assert rows_of(tmp_path / "a.parquet", index_dir, admission) == [[1, 2], [3, 4]]


@BOTH
def test_two_parquet_files_laid_end_to_end_are_refused(tmp_path, table, index_dir, admission):
    for name, rows in (("a", [[1, 2], [3, 4]]), ("b", [[5, 6], [7, 8]])):
        pq.write_table(table(rows), tmp_path / name)
    path = tmp_path / "both.parquet"
    path.write_bytes((tmp_path / "a").read_bytes() + (tmp_path / "b").read_bytes())
    with pytest.raises(StoreRefusedError, match=r"'both\.parquet': it is two Parquet files laid end to end"):
        open_store(path, index_dir=index_dir, admission=admission)


@BOTH
def test_what_writers_put_between_data_and_footer_is_no_second_file(tmp_path, table, index_dir, admission):
    path = tmp_path / "a.parquet"
    pq.write_table(table([[1, 2], [3, 4]]), path, write_page_index=True, write_page_checksum=True)
    assert rows_of(path, index_dir, admission) == [[1, 2], [3, 4]]


@BOTH
@pytest.mark.parametrize("form", ["arrow_stream", "parquet"])
@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("input_ids", pa.list_(pa.list_(pa.int32()))),
        ("input_ids", pa.list_(pa.bool_())),
        ("input_ids", pa.map_(pa.int32(), pa.int32())),
        ("loss_mask", pa.list_(pa.string())),
        ("loss_mask", pa.int8()),
        ("attention_mask", pa.list_(pa.date32())),
        ("loss_weight", pa.list_(pa.bool_())),
    ],
)
def test_a_type_that_is_not_read_is_refused_before_any_row(
    tmp_path, write, table, index_dir, admission, form, column, kind
):
    good = table([[1, 2], [3, -1]])
    if column not in good.schema.names:
        good = good.append_column(column, good.column("loss_mask"))
    write(tmp_path / "a", good, form)
    at = good.schema.get_field_index(column)
    write(tmp_path / "b", good.slice(0, 0).set_column(at, column, pa.chunked_array([], kind)), form)
    with pytest.raises(StoreRefusedError, match=rf"^Shard 'b\..*column '{column}' has the type .*, which is not read"):
        open_store(tmp_path, index_dir=index_dir, admission=admission)


def test_a_mask_that_is_not_asked_for_may_have_any_type(tmp_path, index_dir, table):
    found = table([[1, 2]]).set_column(1, "loss_mask", pa.array(["no mask"]))
    pq.write_table(found, tmp_path / "a.parquet")
    store = open_store(tmp_path / "a.parquet", index_dir=index_dir, loss_mask="all")
    assert store[0].input_ids.tolist() == [1, 2]
