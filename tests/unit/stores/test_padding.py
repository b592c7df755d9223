"""What padding is estimated to be, with and without packing."""

from pathlib import Path

import pytest

from dataserver.run_spec import LongRows
from dataserver.stores import LossMask, open_store
from dataserver.stores.padding import estimate_padding
from dataserver.testing import write_store


@pytest.fixture
def tables(tmp_path: Path):
    def of(lengths: list[int]):
        path = write_store(tmp_path / "store", lengths=lengths)
        return open_store(path, loss_mask=LossMask.ALL, index_dir=tmp_path / "index").tables

    return of


def test_rows_of_one_length_need_no_padding(tables):
    for size in estimate_padding(tables([8] * 64), 8, LongRows.TRUNCATE):
        assert (size.unpacked, size.packed) == (0, 0)


def test_packing_removes_what_padding_to_the_longest_costs(tables):
    sizes = estimate_padding(tables([4, 12] * 400), 16, LongRows.TRUNCATE)
    assert [size.micro_batch_tokens for size in sizes] == [16, 32, 64, 128]
    for size in sizes:
        assert size.packed < 0.01
    # Whatever the order, batches of 128 positions hold ten rows of up to 12 tokens, of which half have 4.
    assert 0.25 < sizes[-1].unpacked < 0.4


def test_rows_count_as_long_as_they_are_served(tables):
    (first, *_) = estimate_padding(tables([6, 40] * 100), 8, LongRows.TRUNCATE)
    assert first.micro_batch_tokens == 8
    # One row fits at a time, and 6 of 8 are not filled in every second one.
    assert first.packed == pytest.approx(1 - 14 / 16)


def test_long_rows_count_as_what_is_made_of_them(tables):
    # 40 = 4 x 9 + 4, and 10 = 9 + 1, whose last token is no sample.
    (first, *_) = estimate_padding(tables([40, 10] * 50), 9, LongRows.SPLIT)
    assert (first.micro_batch_tokens, first.rows) == (16, 6 * 50)
    assert estimate_padding(tables([40, 10] * 50), 10, LongRows.DROP)[0].rows == 50


def test_only_some_rows_of_a_large_store_are_looked_at(tables):
    lengths = [2, 3] * 30_000
    (first, *_) = estimate_padding(tables(lengths), 4, LongRows.TRUNCATE)
    assert 4096 <= first.rows < 8192


@pytest.mark.parametrize("lengths", [[], [1, 1], [900, 100]])
def test_a_store_that_fills_no_few_micro_batches_tells_nothing(tables, lengths):
    assert estimate_padding(tables(lengths), 1024, LongRows.TRUNCATE) == ()
