"""How many rows are served of each block: what a shuffle by blocks needs to know of a store."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataserver.run_spec import LongRows
from dataserver.stores import LossMask, open_store


def test_blocks_count_their_kept_rows_over_all_shards(opened, write, table, tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    write(folder / "a", table([[1, 2]] * 7), "parquet", 3)
    write(folder / "b", table([[1, 2], [1], [1], [1, 2], [1]]), "parquet", 2)
    view = opened(folder).view(8)
    assert view.block_rows().tolist() == [3, 3, 1, 1, 1, 0]
    assert view.block_rows().sum() == view.rows


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=20), per_block=st.integers(1, 6), data=st.data())
@pytest.mark.parametrize("long_rows", [LongRows.TRUNCATE, LongRows.DROP, LongRows.SPLIT])
def test_the_rows_of_a_block_are_those_that_are_read_from_it(
    tmp_path_factory, write, table, long_rows, lengths, per_block, data
):
    folder = tmp_path_factory.mktemp("store")
    path = write(folder / "rows", table([[5] * length for length in [4, *lengths]]), "arrow_file", per_block)
    with open_store(path, loss_mask=LossMask.ALL, index_dir=folder / "index") as store:
        view = store.view(4, long_rows)
        blocks = view.store_rows(np.arange(view.rows)) // per_block
        expected = [blocks.tolist().count(block) for block in range(-(-store.rows // per_block))]
        assert view.block_rows().tolist() == expected
