"""Every list layout of Arrow gives the same rows, or is refused by its type's name."""

import numpy as np
import pyarrow as pa
import pytest

from dataserver.errors import StoreRefusedError
from dataserver.stores.layout import MappedFile, place
from dataserver.stores.ragged import ragged

ROWS = [[1, 2], [3], [], [4, 5, 6]]


def rows_of(array):
    column = ragged(array, shard="s", column="input_ids")
    flat, nulls = column.flat()
    assert nulls is None
    ends = np.cumsum(column.lengths)
    return [flat[end - length : end].tolist() for end, length in zip(ends, column.lengths, strict=True)]


@pytest.mark.parametrize("make", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
@pytest.mark.parametrize(
    "value", [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float16(), pa.float64()]
)
def test_every_list_type_gives_its_rows_whole_and_sliced(make, value):
    array = pa.array(ROWS, make(value))
    assert rows_of(array) == ROWS
    for begin in range(5):
        for count in range(5 - begin):
            assert rows_of(array.slice(begin, count)) == ROWS[begin : begin + count]


def test_a_slice_of_a_slice_keeps_its_rows():
    assert rows_of(pa.array([[1], [1, 2], [1, 2, 3]])[1:][1:]) == [[1, 2, 3]]


def test_a_fixed_size_list_that_is_sliced_keeps_its_rows():
    array = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2))[1:]
    assert rows_of(array) == [[3, 4], [5, 6]]
    assert rows_of(pa.array([[9, 9], [1, 2], [3, 4]], pa.list_(pa.int32(), 2))[1:]) == [[1, 2], [3, 4]]


def test_views_in_any_order_and_overlapping_give_row_order():
    array = pa.ListViewArray.from_arrays(offsets=[2, 0], sizes=[1, 2], values=[1, 2, 3])
    assert rows_of(array) == [[3], [1, 2]]
    array = pa.ListViewArray.from_arrays(offsets=[1, 0, 1], sizes=[2, 3, 0], values=[1, 2, 3])
    assert rows_of(array) == [[2, 3], [1, 2, 3], []]


def test_offsets_that_begin_within_the_values_shift_nothing():
    array = pa.Array.from_buffers(
        pa.list_(pa.int32()),
        2,
        [None, pa.py_buffer(np.array([1, 2, 5], np.int32))],
        children=[pa.array([1, 2, 1, 2, 3], pa.int32())],
    )
    assert rows_of(array) == [[2], [1, 2, 3]]


def test_a_file_whose_offsets_do_not_begin_at_0_is_served_right(opened, one_file, table):
    path = one_file(table([[1, 2], [1, 2, 3]]))
    written, other = (np.array(offsets, np.int32).tobytes() for offsets in ([0, 2, 5], [1, 2, 5]))
    data = path.read_bytes()
    assert data.count(written) == 2, "the offsets of tokens and mask; pyarrow itself always begins at 0"
    path.write_bytes(data.replace(written, other))
    assert [row.input_ids.tolist() for row in opened(path)] == [[2], [1, 2, 3]]


def test_null_and_empty_are_told_apart_and_rows_keep_their_numbers():
    column = ragged(pa.array([[1, 2], None, [], [3]]), shard="s", column="input_ids")
    assert column.null_rows.tolist() == [False, True, False, False]
    assert column.lengths.tolist() == [2, 0, 0, 1]
    part = ragged(pa.array([None, [1, 2], None])[1:], shard="s", column="input_ids")
    assert part.null_rows.tolist() == [False, True]


def test_nulls_among_values_are_found_where_they_are():
    column = ragged(pa.array([[1, None], [2], [None]])[1:], shard="s", column="input_ids")
    _, nulls = column.flat()
    assert nulls.tolist() == [False, True]


def test_an_extension_type_is_read_by_its_storage():
    class Tokens(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.list_(pa.int32()), "tests.tokens")

        def __arrow_ext_serialize__(self):
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage_type, serialized):
            return cls()

    array = pa.ExtensionArray.from_storage(Tokens(), pa.array(ROWS, pa.list_(pa.int32())))
    assert rows_of(array) == ROWS
    assert rows_of(array[1:]) == ROWS[1:]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", "b"]),
        pa.array([1, 2]),
        pa.array([["a"], []]),
        pa.array([[[1]], []]),
        pa.array([{"a": [1]}]),
        pa.array([None, None]),
        pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([[1, 2]])),
        pa.ListArray.from_arrays([0, 2], pa.array([1, 2]).dictionary_encode()),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
    ],
    ids=lambda array: str(array.type),
)
def test_another_type_is_refused_by_its_name(array):
    with pytest.raises(StoreRefusedError) as caught:
        ragged(array, shard="s.arrow", column="input_ids")
    assert f"column 'input_ids' has the type {array.type}," in caught.value.message
    assert "s.arrow" in caught.value.message


def test_offsets_that_point_out_of_the_values_are_refused():
    for offsets in ([0, 9, 2], [0, -5, 2], [0, 2, 1]):
        array = pa.Array.from_buffers(
            pa.list_(pa.int32()),
            2,
            [None, pa.py_buffer(np.array(offsets, np.int32))],
            children=[pa.array([1, 2], pa.int32())],
        )
        with pytest.raises(StoreRefusedError, match="point outside of its values"):
            ragged(array, shard="s", column="input_ids")


def test_a_huge_neighbouring_chunk_does_not_overflow_offsets():
    # list<null> has no values in memory: 2^31 - 10 of them cost nothing.
    size = 2**31 - 10
    huge = pa.ListArray.from_arrays(pa.array([0, size], pa.int32()), pa.nulls(size))
    column = ragged(huge, shard="s", column="x")
    assert column.lengths.tolist() == [size]
    assert column.lengths.sum() * 2 > 2**31


def test_a_small_row_beside_a_huge_chunk_is_read_where_joining_the_chunks_overflows():
    size = 2**31 - 10
    chunks = [pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count)) for count in (size, 20)]
    rows = pa.table({"input_ids": pa.chunked_array(chunks)})
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        rows.combine_chunks()
    found = [ragged(batch.column(0), shard="s", column="input_ids") for batch in rows.to_batches()]
    assert [column.lengths.tolist() for column in found] == [[size], [20]]
    assert len(found[1].flat()[0]) == 20


def test_buffers_outside_of_the_map_are_not_placed():
    array = pa.array(ROWS, pa.list_(pa.int32()))
    assert place(array, MappedFile(address=array.buffers()[1].address + 1, size=1 << 40)) is None
    assert place(array, MappedFile(address=0, size=1)) is None


@pytest.mark.parametrize("make", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
@pytest.mark.parametrize("mask", [pa.bool_(), pa.int8(), pa.uint8(), pa.int64(), pa.float32()])
def test_every_list_type_is_served_from_a_file(opened, one_file, table, make, mask):
    masks = [[1, 0], [1], [], [0, 1, 1]]
    given = [[bool(value) for value in row] for row in masks] if mask == pa.bool_() else masks
    path = one_file(table(ROWS, given, ids_type=make(pa.int64()), mask_type=make(mask)), rows_per_block=3)
    store = opened(path)
    assert store.shards[0].layout is not None, "uncompressed Arrow is served from the map"
    assert [row.input_ids.tolist() for row in store] == ROWS
    assert [row.loss_mask.tolist() for row in store] == masks


def test_fixed_size_lists_are_served_from_a_file(opened, one_file, table, form):
    kind = pa.list_(pa.uint16(), 2)
    path = one_file(
        table([[1, 2], [3, 4], [5, 6]], ids_type=kind, mask_type=pa.list_(pa.int8(), 2)), form, rows_per_block=2
    )
    assert [row.input_ids.tolist() for row in opened(path)] == [[1, 2], [3, 4], [5, 6]]


def test_shards_may_differ_in_list_type_and_width(opened, tmp_path, write, table):
    directory = tmp_path / "store"
    directory.mkdir()
    write(directory / "a", table([[1, 2]]), "arrow_stream")
    write(
        directory / "b",
        table([[3, 4]], ids_type=pa.large_list(pa.int64()), mask_type=pa.large_list(pa.float64())),
        "arrow_file",
    )
    write(directory / "c", table([[5, 6]], ids_type=pa.list_view(pa.float32())), "arrow_lz4")
    assert [row.input_ids.tolist() for row in opened(directory)] == [[1, 2], [3, 4], [5, 6]]


def test_a_column_of_only_empty_rows_is_admitted_with_its_rows(opened, one_file, form):
    table = pa.table({"input_ids": pa.array([[], [], []]), "loss_mask": pa.array([[], [], []])})
    store = opened(one_file(table, form))
    assert (len(store), store.tokens, store.longest_row, store.max_token) == (3, 0, 0, -1)
    assert store.selection(4).dropped == {"empty": 3}
