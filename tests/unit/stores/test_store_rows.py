"""Rows come back as they were written, whatever the file looks like; views keep what the rule in plain Python keeps."""

import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from view_reading import read_view

from dataserver.errors import InvalidRequestError, OutOfRangeError, StoreDamagedError, StoreRefusedError
from dataserver.run_spec import LongRows
from dataserver.stores import BlockCache, LossMask, neighbours, open_store, pieces, selection, shard_rows
from dataserver.stores.tables import Tables

LISTS = (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)

ragged_rows = st.lists(
    st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=9),
    min_size=1,
    max_size=25,
)


def verdict(mask, max_length, long_rows):
    """The rule in plain Python, for one row."""
    if not mask:
        return "empty"
    if not any(mask[1:]):
        return "no_target"
    if long_rows is LongRows.DROP and len(mask) > max_length:
        return "too_long"
    if not any(mask[1:max_length]):
        return "target_cut_off"
    return ""


def gather(view, rows, token_bytes=4):
    """What `read` gives for `rows`, as lists."""
    read = read_view(view, rows, token_bytes)
    bounds = np.cumsum(view.lengths(rows))[:-1]
    return tuple(
        [part.tolist() for part in np.split(whole, bounds)][: len(rows)] for whole in (read.tokens, read.loss_mask)
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=ragged_rows,
    shards=st.integers(1, 3),
    rows_per_block=st.integers(1, 9),
    lists=st.tuples(st.sampled_from(LISTS), st.sampled_from(LISTS)),
    types=st.tuples(
        st.sampled_from([pa.int16(), pa.int32(), pa.uint32(), pa.int64(), pa.float32()]),
        st.sampled_from([pa.bool_(), pa.int8(), pa.uint8(), pa.int64(), pa.float64()]),
    ),
    form=st.sampled_from(["arrow_file", "arrow_stream", "arrow_lz4", "parquet"]),
    max_length=st.integers(1, 10),
    long_rows=st.sampled_from([LongRows.TRUNCATE, LongRows.DROP]),
    chunk=st.sampled_from([1, 3, 1 << 20]),
    seed=st.integers(0, 9),
)
def test_any_rows_in_any_form_are_read_and_served_as_written(
    write, rows, shards, rows_per_block, lists, types, form, max_length, long_rows, chunk, seed
):
    make_ids, make_mask = (pa.list_, pa.list_) if form == "parquet" else lists
    ids = [[token for token, _ in row] for row in rows]
    masks = [[one for _, one in row] for row in rows]
    numbers = [[int(one) for one in row] for row in masks]
    table = pa.table(
        {
            "loss_mask": pa.array(masks if types[1] == pa.bool_() else numbers, make_mask(types[1])),
            "other": pa.array([None] * len(rows), pa.string()),
            "input_ids": pa.array(ids, make_ids(types[0])),
        }
    )
    with TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_TOKENS", chunk)
        patch.setattr(pieces, "_PIECE_ROWS", chunk)
        patch.setattr(selection, "_CHUNK_ROWS", chunk)
        patch.setattr("dataserver.stores.long_rows._CHUNK_TOKENS", chunk)
        patch.setattr(shard_rows, "_MAX_READERS", 1)
        patch.setattr(neighbours, "_MOST_SHARDS", chunk)
        directory = Path(scratch, "store")
        directory.mkdir()
        bounds = np.linspace(0, len(rows), shards + 1).astype(int)
        for number, (begin, end) in enumerate(pairwise(bounds)):
            write(directory / f"chunk-{number}", table.slice(begin, end - begin), form, rows_per_block)
        for _ in ("cold", "warm"):
            store = open_store(directory, index_dir=Path(scratch, "index"))
            assert [row.input_ids.tolist() for row in store] == ids
            assert [row.loss_mask.tolist() for row in store] == numbers
            assert store.lengths().tolist() == [len(row) for row in ids]

        verdicts = [verdict(mask, max_length, long_rows) for mask in masks]
        kept = [row for row, reason in enumerate(verdicts) if reason == ""]
        view = store.selection(max_length, long_rows)
        assert store.reasons(0, len(rows), max_length, long_rows) == tuple(verdicts)
        assert view.dropped == {reason: verdicts.count(reason) for reason in verdicts if reason}
        assert store.figures(max_length, long_rows) == view.figures
        assert view.store_rows(np.arange(view.rows)).tolist() == kept
        assert view.kept_tokens == sum(min(len(ids[row]), max_length) for row in kept)
        assert view.kept_tokens + view.cut_tokens == sum(len(ids[row]) for row in kept)
        order = np.random.default_rng(seed).permutation(len(kept))
        tokens, mask = gather(view, order)
        assert tokens == [ids[kept[row]][:max_length] for row in order]
        assert mask == [numbers[kept[row]][:max_length] for row in order]
        assert view.targets(order).tolist() == [sum(masks[kept[row]][1:max_length]) for row in order]


@pytest.fixture
def store(opened, tmp_path, write, table, form):
    directory = tmp_path / "chats"
    directory.mkdir()
    rows = [[number] * (number % 7 + 2) for number in range(60)]
    for shard in range(3):
        write(directory / f"chunk-{shard}", table(rows[shard * 20 : shard * 20 + 20]), form, rows_per_block=6)
    return opened(directory)


def test_rows_come_in_the_order_asked_also_twice(store):
    asked = [59, 0, 21, 21, 3]
    assert [row.input_ids[0] for row in store.read_rows(asked)] == asked
    assert store[40].input_ids.tolist() == [40] * 7
    assert store.read_rows([]) == []


def test_a_row_that_is_read_does_not_keep_its_neighbours_in_memory(store):
    first, second = store.read_rows([0, 1])
    assert first.input_ids.base is None
    assert second.loss_mask.base is None


@pytest.mark.parametrize("row", [-1, 60])
def test_a_row_outside_of_the_store_is_an_error_and_not_another_row(store, row):
    with pytest.raises(OutOfRangeError, match=f"no row {row} in"):
        store[row]
    with pytest.raises(OutOfRangeError, match=f"no row {row} among the 60"):
        store.view(8).lengths(np.array([row]))
    with pytest.raises(OutOfRangeError):
        store.reasons(row, row + 1, 8)


def test_tokens_go_into_wider_arrays_but_never_into_narrower_ones(opened, one_file, table):
    store = opened(one_file(table([[1, 70000]])))
    view = store.view(4)
    assert gather(view, np.arange(1), 4)[0] == [[1, 70000]]
    with pytest.raises(InvalidRequestError, match="need 4"):
        gather(view, np.arange(1), 2)
    narrow = opened(one_file(table([[1, 65535]]), "parquet")).view(4)
    assert gather(narrow, np.arange(1), 2)[0] == [[1, 65535]]
    assert gather(narrow, np.arange(1), 4)[0] == [[1, 65535]]


def test_long_rows_that_are_to_be_refused_are_named(opened, one_file, table, form):
    store = opened(one_file(table([[1, 2], [1] * 9, [2] * 5, [3] * 6], [[1, 1], [0] * 9, [1] * 5, [1] * 6]), form))
    with pytest.raises(StoreRefusedError, match=r"Row 2: input_ids has 5 tokens, more than max_length = 4") as caught:
        store.view(4, LongRows.REFUSE)
    assert caught.value.details["row"] == "2"
    assert store.view(6, LongRows.REFUSE).rows == 3


def test_a_target_at_position_0_counts_nowhere(opened, one_file, table, form):
    view = opened(one_file(table([[1, 2], [1, 2, 3]], [[1, 0], [1, 0, 1]]), form)).view(3)
    assert view.dropped == {"no_target": 1}
    assert view.targets(np.array([0])).tolist() == [1]
    assert gather(view, np.array([0]))[1] == [[1, 0, 1]]


def test_a_view_in_which_all_rows_are_kept_keeps_no_list_of_them(store, index_dir):
    view = store.view(100)
    assert view.store_rows(np.array([5, 7])).tolist() == [5, 7]
    (directory,) = (index_dir / "views").iterdir()
    assert [file.name for file in directory.iterdir()] == ["figures.json"]


def test_max_length_0_is_refused(store):
    with pytest.raises(InvalidRequestError):
        store.view(0)
    with pytest.raises(InvalidRequestError):
        store.figures(0)


def test_figures_and_reasons_of_any_max_length_leave_no_file(store, index_dir):
    before = sorted(index_dir.rglob("*"))
    for max_length in range(1, 20):
        assert store.figures(max_length).rows == (60 if max_length > 1 else 0)
        assert set(store.reasons(0, 60, max_length)) == ({""} if max_length > 1 else {"target_cut_off"})
    assert sorted(index_dir.rglob("*")) == before


def test_the_figures_of_many_rows_take_the_memory_of_a_chunk(monkeypatch):
    rows, chunk = 1_000_000, 1 << 14
    monkeypatch.setattr(selection, "_CHUNK_ROWS", chunk)
    lengths = np.full(rows, 9, dtype=np.int32)
    tables = Tables(lengths=lengths, first_targets=lengths % 3 + 1, targets=lengths, blocks=())
    tracemalloc.start()
    try:
        figures = selection.sum_up(tables, 4, LongRows.TRUNCATE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (figures.rows, figures.kept_tokens, figures.cut_tokens) == (rows, 4 * rows, 5 * rows)
    assert peak < 100 * chunk


def test_the_beginning_of_rows_is_read_alone(store):
    assert [row.input_ids.tolist() for row in store.read_rows([8, 2], max_length=2)] == [[8, 8], [2, 2]]
    assert [len(row.loss_mask) for row in store.read_rows([0, 6], max_length=5)] == [2, 5]


def test_stores_and_views_pickle_as_references(store):
    again = pickle.loads(pickle.dumps(store))  # noqa: S301
    assert again.fingerprint == store.fingerprint
    assert again[33].input_ids.tolist() == store[33].input_ids.tolist()
    view = pickle.loads(pickle.dumps(store.view(4)))  # noqa: S301
    assert (view.rows, view.max_length) == (60, 4)
    assert len(pickle.dumps(store)) < 1000


def test_an_unpickled_store_keeps_to_the_bound_of_the_cache_that_it_had(index_dir, one_file, table):
    path = one_file(table([[1, 2]] * 40), "parquet")
    stores = [open_store(path, index_dir=index_dir, cache=BlockCache(limit)) for limit in (1 << 20, 1 << 20, 1 << 21)]
    again = [pickle.loads(pickle.dumps(store)) for store in stores]  # noqa: S301
    caches = [store._shard_rows._cache for store in again]
    assert [cache.limit_bytes for cache in caches] == [1 << 20, 1 << 20, 1 << 21]
    assert caches[0] is caches[1]
    assert [store[7].input_ids.tolist() for store in again] == [[1, 2]] * 3


def test_a_pickled_store_that_changed_is_not_reopened(opened, one_file, table):
    data = pickle.dumps(opened(one_file(table([[1, 2]]))))
    one_file(table([[1, 3]]))
    with pytest.raises(StoreDamagedError, match="its fingerprint was"):
        pickle.loads(data)  # noqa: S301


def test_many_threads_read_the_same_rows(store):
    view = store.view(5)
    orders = [np.random.default_rng(seed).permutation(60) for seed in range(16)]
    with ThreadPoolExecutor(8) as pool:
        for order, (tokens, _) in zip(orders, pool.map(lambda order: gather(view, order), orders), strict=True):
            assert tokens == [[row] * min(5, row % 7 + 2) for row in order.tolist()]


def test_a_closed_store_may_be_closed_again(store):
    store.close()
    store.close()


def test_the_histogram_counts_every_row_in_powers_of_two(opened, one_file, table):
    store = opened(one_file(table([[], [1], [1] * 2, [1] * 3, [1] * 4, [1] * 16])))
    found = [(bucket.begin, bucket.end, bucket.rows) for bucket in store.length_histogram()]
    assert found == [(0, 1, 1), (1, 2, 1), (2, 4, 2), (4, 8, 1), (8, 16, 0), (16, 32, 1)]


def test_columns_that_nobody_asked_for_are_never_touched(opened, one_file, table):
    odd = {
        "view": pa.array(["a", "b"], pa.string_view()),
        "runs": pa.RunEndEncodedArray.from_arrays([2], ["x"]),
        "codes": pa.array(["a", "b"]).dictionary_encode(),
        "labels": pa.array([[-100, 1], [2]]),
        "num_actions": pa.array([1, None]),
    }
    for form in ("arrow_file", "arrow_stream", "arrow_lz4"):
        store = opened(one_file(table([[1, 2], [3]], **odd), form))
        assert [row.input_ids.tolist() for row in store] == [[1, 2], [3]]
    del odd["runs"]
    store = opened(one_file(table([[1, 2], [3]], **odd), "parquet"))
    assert [column.name for column in store.columns] == ["input_ids", "loss_mask", *odd]


def test_where_the_mask_comes_from_is_part_of_the_fingerprint(opened, one_file, table):
    path = one_file(table([[1, 2]]))
    assert opened(path).fingerprint != opened(path, LossMask.ALL).fingerprint
