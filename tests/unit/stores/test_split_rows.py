"""Long rows that are split are served in consecutive pieces, and every token in exactly one of them."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from view_reading import read_view

from dataserver.batching.table import SourceTable
from dataserver.errors import InvalidSpecError
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, LongRows, Shuffle
from dataserver.sampling.union import plain_union
from dataserver.stores import LossMask, selection, split


def pieces_of(rows, max_length):
    """The rule in plain Python: (row, offset, tokens) of each piece."""
    found = []
    for number, row in enumerate(rows):
        for offset in range(0, len(row), max_length):
            piece = row[offset : offset + max_length]
            if len(piece) > 1 and max_length > 1:
                found.append((number, offset, piece))
    return found


def numbered(lengths):
    """Rows in which every token is another."""
    ends = np.cumsum(lengths).tolist()
    return [list(range(end - length, end)) for end, length in zip(ends, lengths, strict=True)]


@pytest.fixture
def split_store(opened, one_file, table):
    def make(lengths, form="arrow_stream", rows_per_block=3):
        return opened(one_file(table(numbered(lengths)), form, rows_per_block), LossMask.ALL)

    return make


def served(view, order):
    read, lengths = read_view(view, order), view.lengths(order)
    assert read.loss_mask.tolist() == [1] * lengths.sum()
    tokens = np.split(read.tokens, np.cumsum(lengths)[:-1])[: len(order)]
    tokens = [row.tolist() for row in tokens]
    return list(zip(view.store_rows(order).tolist(), view.offsets(order).tolist(), tokens, strict=True))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(0, 23), min_size=1, max_size=12),
    max_length=st.integers(1, 12),
    form=st.sampled_from(["arrow_file", "arrow_lz4", "parquet"]),
    chunk=st.sampled_from([1, 3, 1 << 20]),
)
def test_pieces_are_those_of_the_rule_in_plain_python(split_store, lengths, max_length, form, chunk):
    rows = numbered(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "_CHUNK_ROWS", chunk)
        patch.setattr(split, "_CHUNK_PIECES", chunk)
        store = split_store(lengths, form)
        expected = pieces_of(rows, max_length)
        for _ in ("written", "mapped again"):
            view = store.selection(max_length, LongRows.SPLIT)
            order = np.random.default_rng(len(expected)).permutation(len(expected))
            assert view.rows == len(expected)
            assert served(view, order) == [expected[at] for at in order]
            assert view.targets(order).tolist() == [len(expected[at][2]) - 1 for at in order]
    kept = {row for row, _, _ in expected}
    assert view.figures == store.figures(max_length, LongRows.SPLIT)
    assert view.kept_tokens == sum(len(piece) for _, _, piece in expected)
    assert view.kept_tokens + view.cut_tokens == sum(lengths[row] for row in kept)
    assert view.figures.long_rows == sum(lengths[row] > max_length for row in kept)
    reasons = store.reasons(0, len(rows), max_length, LongRows.SPLIT)
    assert [row for row, reason in enumerate(reasons) if reason == ""] == sorted(kept)
    assert view.dropped == Counter(reason for reason in reasons if reason)


def test_a_last_piece_of_one_token_is_left_out_and_counted(split_store):
    view = split_store([11, 10, 6]).view(5, LongRows.SPLIT)
    assert view.lengths(np.arange(view.rows)).tolist() == [5, 5, 5, 5, 5]
    assert (view.cut_tokens, view.figures.long_rows) == (2, 3)


def test_a_view_with_as_many_pieces_as_rows_still_knows_which_are_which(split_store):
    """One row dropped and another in two pieces: the counts agree by chance."""
    view = split_store([0, 4, 2]).view(2, LongRows.SPLIT)
    assert served(view, np.arange(3)) == [(1, 0, [0, 1]), (1, 2, [2, 3]), (2, 0, [4, 5])]


def test_where_no_row_is_long_nothing_is_kept_beside_the_figures(split_store, index_dir):
    assert split_store([2, 3, 4]).view(4, LongRows.SPLIT).rows == 3
    (directory,) = (index_dir / "views").iterdir()
    assert [file.name for file in directory.iterdir()] == ["figures.json"]


def test_rows_with_a_mask_of_their_own_are_not_split(opened, one_file, table):
    store = opened(one_file(table([[1, 2, 3]])))
    for ask in (store.view, store.figures, store.selection):
        with pytest.raises(InvalidSpecError, match="only with loss_mask = all"):
            ask(2, LongRows.SPLIT)


@pytest.mark.parametrize("dp_world_size", [1, 3])
def test_an_epoch_serves_every_piece_once(split_store, dp_world_size):
    store = split_store([40, 3, 17, 9, 26, 1, 0, 33])
    view = store.view(8, LongRows.SPLIT)
    table = SourceTable([view], token_bytes=store.token_bytes)
    planner = Planner.of_order(plain_union(table.sizes, seed=1, shuffle=Shuffle.FULL), table, "f")
    batch = BatchSpec(step_tokens=32, micro_batch_tokens=16, max_epochs=1)
    found, cursor = [], planner.initial_cursor()
    while hasattr(plan := planner.plan(cursor, batch, dp_world_size), "rounds"):
        lengths = table.lengths(plan.samples)
        room = table.room(np.cumsum(lengths) - lengths, int(lengths.sum()), covered=True, tokens=True)
        table.read(plan.samples, lengths, room)
        found += room.tokens.tolist()
        assert table.offsets(plan.samples).max() <= 32
        cursor = plan.end
    lost = {40 + 3 + 16, 40 + 3 + 17 + 8, 40 + 3 + 17 + 9 + 26, 40 + 3 + 17 + 9 + 26 + 1 + 32}
    assert sorted(found) == sorted(set(range(129)) - lost)
