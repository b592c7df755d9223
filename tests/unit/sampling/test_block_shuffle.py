"""Block shuffle: each block is used once an epoch, within a window that is a fair sample of the store."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.errors import OutOfRangeError
from dataserver.sampling.blocks import BlockShuffled

blocks_of_rows = st.lists(st.integers(0, 9), max_size=40)


def epoch_of(block_rows, window, seed=5, epoch=0):
    shuffled = BlockShuffled(np.array(block_rows, dtype=np.int64), window, seed)
    return shuffled.rows(epoch, np.arange(shuffled.size))


def blocks_of(block_rows, rows):
    return np.searchsorted(np.cumsum(block_rows), rows, side="right")


@given(block_rows=blocks_of_rows, window=st.integers(1, 50), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 99))
def test_every_row_comes_once_an_epoch(block_rows, window, seed, epoch):
    assert sorted(epoch_of(block_rows, window, seed, epoch).tolist()) == list(range(sum(block_rows)))


@given(block_rows=blocks_of_rows, window=st.integers(1, 50), data=st.data())
def test_any_stretch_is_that_stretch_of_the_epoch(block_rows, window, data):
    whole = epoch_of(block_rows, window)
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    part = BlockShuffled(np.array(block_rows, dtype=np.int64), window, 5).rows(0, np.arange(start, stop))
    assert part.tolist() == whole[start:stop].tolist()


@given(block_rows=blocks_of_rows, window=st.integers(1, 50), epoch=st.integers(0, 9))
def test_a_cache_of_one_window_reads_every_block_once(block_rows, window, epoch):
    cache, reads = OrderedDict(), 0
    for block in blocks_of(block_rows, epoch_of(block_rows, window, epoch=epoch)).tolist():
        reads += block not in cache
        cache[block] = None
        cache.move_to_end(block)
        if len(cache) > window:
            cache.popitem(last=False)
    assert reads == np.count_nonzero(block_rows)


@given(
    blocks=st.integers(1, 300), window=st.integers(1, 40), epoch=st.integers(0, 99),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)  # fmt: skip
def test_a_window_holds_its_share_of_any_stretch_of_the_store(blocks, window, epoch, ends):
    """Give or take a block at either end, one at the ring's beginning, and those that the window lacks."""
    shuffled = BlockShuffled(np.ones(blocks, dtype=np.int64), window, 5)
    windows = -(-blocks // window)
    strata = -(-blocks // windows)
    used = shuffled.rows(epoch, np.arange(blocks))
    begin, end = sorted(int(share * blocks) for share in ends)
    at = 0
    for number in range(windows):
        size = int(shuffled._epoch(epoch).ends[number]) - at
        held = np.count_nonzero((used[at : at + size] >= begin) & (used[at : at + size] < end))
        assert abs(held - (end - begin) * strata / blocks) <= 3 + strata - size
        at += size


def test_epochs_and_seeds_have_windows_of_their_own():
    orders = {tuple(epoch_of([4] * 30, 5, seed, epoch).tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_rows_of_a_window_are_mixed_and_not_block_after_block():
    first = blocks_of([100] * 50, epoch_of([100] * 50, 10)[:1000])
    assert np.count_nonzero(np.diff(first) == 0) == pytest.approx(100, abs=50)


@pytest.mark.parametrize(("batch", "at_most"), [(128, 1.3), (256, 1.4)])
def test_batches_of_64_block_windows_vary_hardly_more_than_those_of_a_full_shuffle(batch, at_most):
    """20 sources laid end to end, 2000 blocks of 100 rows: the variance of what a batch holds of each source."""
    blocks, rows, sources = 2000, 100, 20
    total = blocks * rows
    source_of_row = np.arange(total) * sources // total

    def variance(order):
        batches = source_of_row[order[: total // batch * batch]].reshape(-1, batch)
        return np.stack([(batches == source).sum(axis=1) for source in range(sources)]).var(axis=1).mean()

    mixed = np.mean([variance(epoch_of([rows] * blocks, 64, epoch=epoch)) for epoch in range(3)])
    full = np.mean([variance(np.random.default_rng(seed).permutation(total)) for seed in range(3)])
    assert mixed / full < at_most


def test_a_position_outside_of_the_epoch_is_refused():
    with pytest.raises(OutOfRangeError, match=r"positions 9\.\.10 are not in an epoch of 10 rows"):
        BlockShuffled(np.array([5, 5]), 2, 5).rows(0, np.array([9, 10]))


# The formula, fixed. Changing it is another ORDER_VERSION.
def test_the_first_rows_are_these():
    assert epoch_of([3, 0, 2, 4, 1, 5], 2, seed=11, epoch=3).tolist() == [
        3, 4, 13, 12, 1, 11, 10, 14, 0, 2, 6, 8, 7, 9, 5,
    ]  # fmt: skip
