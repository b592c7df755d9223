"""The same rows are served the same, whoever wrote the Parquet file."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parquetlab.footer import rewrite_schema
from parquetlab.writers import IDS, MASK, WRITERS, as_older_writer, as_table, with_polars

from dataserver.errors import StoreRefusedError
from dataserver.stores import open_store

ROWS = [[1, 2, 3], [], [4], [65_535] * 9, [], [5, 6]]
MASKS = [[0, 1, 1], [], [1], [1] * 9, [], [0, 1]]

some_rows = st.lists(st.lists(st.tuples(st.integers(0, 65_535), st.integers(0, 1)), max_size=6), min_size=1, max_size=9)


@settings(max_examples=10, deadline=None)
@given(rows=some_rows)
def test_any_rows_are_the_same_from_every_writer(rows):
    ids, masks = ([[pair[at] for pair in row] for row in rows] for at in (0, 1))
    with TemporaryDirectory() as scratch:
        path = Path(scratch, "store")
        path.mkdir()
        for number, write in enumerate(WRITERS.values()):
            write(ids, masks, path / f"part-{number}.parquet")
        with open_store(path, index_dir=Path(scratch, "index")) as store:
            found = list(store)
    for number, writer in enumerate(WRITERS):
        part = found[number * len(rows) : (number + 1) * len(rows)]
        assert [row.input_ids.tolist() for row in part] == ids, writer
        assert [row.loss_mask.tolist() for row in part] == masks, writer


def test_files_of_all_writers_are_shards_of_one_store(opened, tmp_path):
    store_path = tmp_path / "store"
    store_path.mkdir()
    for number, write in enumerate(WRITERS.values()):
        write(ROWS, MASKS, store_path / f"part-{number}.parquet")
    pq.write_table(as_table([], []), store_path / "part-3-no-rows.parquet")
    pq.ParquetWriter(store_path / "part-5-no-row-groups.parquet", as_table([], []).schema).close()
    store = opened(store_path)
    assert [row.input_ids.tolist() for row in store] == ROWS * len(WRITERS)
    assert [shard.rows for shard in store.shards if "no-row" in shard.path] == [0, 0]
    assert store.token_bytes == 2, "one width for all shards"


@pytest.mark.parametrize("names", [("list", "element"), ("bag", "array"), ("array",), ("input_ids_tuple",)])
def test_null_and_empty_lists_are_told_apart_in_every_form(opened, tmp_path, names):
    path = tmp_path / "a.parquet"
    as_older_writer(
        [[1, 2], [], None, [3]], [[1, 1], [], None, [1]], path, names=names, nullable=(True, len(names) == 2)
    )
    with pytest.raises(StoreRefusedError, match=r"Row 2: input_ids is null"):
        opened(path)
    as_older_writer([[1, 2], [], [3]], [[1, 1], [], [1]], path, names=names, nullable=(True, len(names) == 2))
    assert [row.input_ids.tolist() for row in opened(path)] == [[1, 2], [], [3]]


def test_the_footer_is_that_of_two_levels(tmp_path):
    """The laboratory makes what it says, as pyarrow reads it."""
    path = tmp_path / "a.parquet"
    as_older_writer(ROWS, MASKS, path, names=("array",), nullable=(True, False))
    schema = str(pq.ParquetFile(path).schema)
    assert "optional group field_id=-1 input_ids (List) {\n    repeated int32 field_id=-1 array;\n  }" in schema
    as_older_writer(ROWS, MASKS, path, names=(), nullable=(False, False), wrapped=False)
    assert "  repeated int32 field_id=-1 input_ids;\n" in str(pq.ParquetFile(path).schema)


@pytest.mark.parametrize("name", ["array", "input_ids_tuple"])
def test_a_group_that_is_itself_the_value_by_the_old_rule_is_refused_by_its_type(opened, tmp_path, name):
    """A repeated group of one field called `array` or `…_tuple` holds structs, not numbers."""
    path = tmp_path / "a.parquet"
    pq.write_table(as_table(ROWS, MASKS), path, store_schema=False)
    rewrite_schema(path, name, "element")
    with pytest.raises(StoreRefusedError, match=r"column 'input_ids' has the type list<\w+: struct<element: int32>"):
        opened(path)


def test_lists_of_one_length_are_read_from_polars_arrays(opened, tmp_path):
    import polars

    path = tmp_path / "a.parquet"
    kinds = {IDS: polars.Array(polars.Int32, 2), MASK: polars.Array(polars.Int8, 2)}
    polars.DataFrame({IDS: [[1, 2], [3, 4]], MASK: [[0, 1], [1, 1]]}, schema=kinds).write_parquet(path)
    assert [row.input_ids.tolist() for row in opened(path)] == [[1, 2], [3, 4]]


def test_dictionaries_and_unknown_extension_types_are_read_by_what_they_store(opened, tmp_path):
    ids = pa.ListArray.from_arrays([0, 2, 3], pa.array([7, 70_000, 7], pa.int32()).dictionary_encode())
    field = pa.field(MASK, pa.list_(pa.int8()), metadata={"ARROW:extension:name": "nobody.knows"})
    table = pa.table([ids, pa.array([[0, 1], [1]], field.type)], schema=pa.schema([pa.field(IDS, ids.type), field]))
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    store = opened(path)
    assert [row.input_ids.tolist() for row in store] == [[7, 70_000], [7]]
    assert [row.loss_mask.tolist() for row in store] == [[0, 1], [1]]


def test_side_columns_of_any_type_are_left_alone(opened, tmp_path):
    side = {
        "view": pa.array(["a"], pa.string_view()),
        "nested": pa.array([[{"a": [["b"]]}]]),
        "map": pa.array([[("k", [1])]], pa.map_(pa.string(), pa.list_(pa.int8()))),
        "decimal": pa.array([1], pa.decimal128(30, 2)),
    }
    table = pa.table({**{name: as_table([[1, 2]], [[1, 1]])[name] for name in (IDS, MASK)}, **side})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    assert opened(path)[0].input_ids.tolist() == [1, 2]


def test_a_width_that_differs_between_writers_is_one_on_the_wire(opened, tmp_path):
    """Format 1.0 has no unsigned 32 bits and stores 64: the same tokens, and the same bytes a token."""
    store_path = tmp_path / "store"
    store_path.mkdir()
    for number, version in enumerate(("1.0", "2.6")):
        table = as_table([[1, 2]], [[1, 1]], value=pa.uint32())
        pq.write_table(table, store_path / f"{number}.parquet", version=version, store_schema=False)
    with_polars([[3, 4]], [[1, 1]], store_path / "2.parquet")
    store = opened(store_path)
    types = {column.type for shard in store.shards for column in shard.columns if column.name == IDS}
    assert len(types) == 3
    assert [row.input_ids.tolist() for row in store] == [[1, 2], [1, 2], [3, 4]]
    assert store.token_bytes == 2
