"""Parquet and compressed Arrow: one decode per touched block, bounded bytes, and bytes that changed are noticed."""

import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from view_reading import tokens_of

from dataserver.errors import StoreDamagedError, StoreRefusedError
from dataserver.run_spec import Shuffle
from dataserver.sampling.blocks import BlockShuffled
from dataserver.sampling.order import Place
from dataserver.sampling.union import plain_union
from dataserver.stores import BlockCache, open_store
from dataserver.stores.block_files import NearBlocks
from dataserver.stores.decoded import DecodedReader
from dataserver.stores.local_files import LocalFiles
from dataserver.stores.parquet_file import ParquetFile


@pytest.fixture
def decoded(monkeypatch):
    """Which Parquet row groups were decoded, in order."""
    seen = []
    read_block = ParquetFile.read_block

    def noting(self, number, *arguments):
        seen.append((self._name, number))
        return read_block(self, number, *arguments)

    monkeypatch.setattr(ParquetFile, "read_block", noting)
    return seen


def test_each_row_group_that_rows_touch_is_read_once(opened, one_file, table, decoded):
    path = one_file(table([[row, row] for row in range(60)]), "parquet", rows_per_block=10)
    opened(path)
    store = opened(path)
    decoded.clear()
    asked = [55, 3, 41, 7, 58, 40, 0]
    assert [int(row.input_ids[0]) for row in store.read_rows(asked)] == asked
    assert sorted(decoded) == [(path.name, 0), (path.name, 4), (path.name, 5)]
    store.read_rows(asked)
    assert len(decoded) == 3, "what is decoded is held"


def test_a_row_group_above_the_bound_is_refused_by_its_name(one_file, table, index_dir):
    path = one_file(table([[1]] * 3 + [[1] * 400] * 3), "parquet", rows_per_block=3)
    limit = 5_000
    text = (
        rf"Shard '{path.name}', row group 1: decoding it takes up to \d+ bytes, more than block_cache_bytes = {limit}"
    )
    with pytest.raises(StoreRefusedError, match=text):
        open_store(path, index_dir=index_dir, cache=BlockCache(limit))
    assert len(open_store(path, index_dir=index_dir, cache=BlockCache(100_000))) == 6
    with pytest.raises(StoreRefusedError, match="row group 1"):
        open_store(path, index_dir=index_dir, cache=BlockCache(limit))


def test_a_mapped_record_batch_of_any_size_needs_no_cache(one_file, table, index_dir):
    store = open_store(one_file(table([[1] * 4000])), index_dir=index_dir, cache=BlockCache(1))
    assert len(store[0].input_ids) == 4000


@pytest.mark.parametrize("form", ["arrow_lz4", "parquet"])
def test_threads_that_decode_at_once_stay_within_the_bound(tmp_path, write, form):
    """Measured: what numpy and Arrow hold at most, together."""
    rows, length, per_block = 800, 2_000, 100
    random = np.random.default_rng(0)
    offsets = pa.array(np.arange(rows + 1, dtype=np.int64) * length)
    ids = pa.LargeListArray.from_arrays(offsets, pa.array(random.integers(0, 60_000, rows * length, dtype=np.int32)))
    mask = pa.LargeListArray.from_arrays(offsets, pa.array(np.ones(rows * length, np.int8)))
    path = write(tmp_path / "a", pa.table({"input_ids": ids, "loss_mask": mask}), form, per_block)
    open_store(path, index_dir=tmp_path / "index").close()
    code = """
        import sys, tracemalloc
        from concurrent.futures import ThreadPoolExecutor
        from pathlib import Path
        import numpy as np
        import pyarrow, pyarrow.parquet
        from dataserver.stores import BlockCache, open_store
        path, index = map(Path, sys.argv[1:])
        with open_store(path, index_dir=index) as store:
            limit = 5 * int(max(blocks.needed_bytes.max() for blocks in store.tables.blocks)) // 2
            store[0]  # machine code is loaded by the first read, and is not counted
        store = open_store(path, index_dir=index, cache=BlockCache(limit))
        tracemalloc.start()
        rows = np.random.default_rng(0).permutation(len(store))[:100].tolist()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda row: len(store[row].input_ids), rows))
        print(tracemalloc.get_traced_memory()[1], pyarrow.default_memory_pool().max_memory(), limit)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), path, tmp_path / "index"]
    numpy_peak, arrow_peak, limit = map(int, subprocess.check_output(command, text=True).split())
    assert limit / 4 < numpy_peak + arrow_peak <= limit


@pytest.mark.parametrize("form", ["arrow_lz4", "parquet"])
def test_what_was_reserved_covers_the_decoded_block(one_file, table, index_dir, form):
    rows = [[row, 70_000, row][: row % 4] for row in range(300)]
    store = open_store(one_file(table(rows), form, rows_per_block=50), index_dir=index_dir)
    decoded = sum(len(row) for row in rows) * (store.token_bytes + 1) + (len(rows) + 6) * 8
    (blocks,) = store.tables.blocks
    assert decoded < blocks.needed_bytes.sum() < 10 * decoded


def test_stores_of_one_cache_share_its_bound(tmp_path, write, table, index_dir):
    cache = BlockCache(60_000)
    paths = [write(tmp_path / name, table([[row] * 20 for row in range(200)]), "parquet", 20) for name in "ab"]
    stores = [open_store(path, index_dir=index_dir, cache=cache) for path in paths]
    for _ in range(2):
        for store in stores:
            assert [int(row.input_ids[0]) for row in store.read_rows(range(200))] == list(range(200))
            assert 0 < cache.counted_bytes <= 60_000
    stores[0].close()
    stores[1].close()
    assert cache.counted_bytes == 0


def test_a_full_shuffle_over_a_store_beyond_the_cache_is_right_and_costs_what_was_said(
    one_file, table, index_dir, decoded
):
    rows, per_group, together = 2_000, 50, 8
    path = one_file(table([[row, 7, row] for row in range(rows)]), "parquet", rows_per_block=per_group)
    cache = BlockCache(12_000)
    store = open_store(path, index_dir=index_dir, cache=cache)
    said = store.read_amplification()
    assert said is not None
    assert (said.blocks, said.cache_bytes) == (rows // per_group, 12_000)
    assert said.decoded_bytes == rows * 3 * 3 + (rows + said.blocks) * 8
    view = store.view(3)
    order = plain_union((rows,), 5, Shuffle.FULL)
    decoded.clear()
    served = []
    for begin in range(0, rows, together):
        numbers = order.samples(Place(position=begin), together).row
        tokens = tokens_of(view, numbers, 2)
        assert tokens[::3].tolist() == tokens[2::3].tolist() == numbers.tolist()
        assert cache.counted_bytes <= 12_000
        served += numbers.tolist()
    assert sorted(served) == list(range(rows))
    assert len(decoded) * per_group / rows == pytest.approx(said.rows_per_row, rel=0.1)
    assert said.rows_per_row < per_group


def test_a_block_shuffle_decodes_every_row_group_once_an_epoch(one_file, table, index_dir, decoded):
    rows, per_group, window = 2_000, 50, 4
    path = one_file(table([[row, 7, row] for row in range(rows)]), "parquet", rows_per_block=per_group)
    two_windows, decoding = 2 * window * (per_group * 9 + (per_group + 1) * 8), 9_000
    store = open_store(path, index_dir=index_dir, cache=BlockCache(two_windows + decoding))
    view = store.view(3)
    shuffled = BlockShuffled(view.block_rows(), window, seed=5)
    decoded.clear()
    for begin in range(0, rows, 8):
        numbers = shuffled.rows(0, np.arange(begin, begin + 8))
        tokens = tokens_of(view, numbers, 2)
        assert tokens[::3].tolist() == numbers.tolist()
    assert len(decoded) == rows // per_group


def test_nothing_is_said_of_a_store_that_fits_the_cache_or_is_mapped(one_file, table, index_dir):
    rows = [[row, 7] for row in range(500)]
    store = open_store(one_file(table(rows), "parquet", rows_per_block=10), index_dir=index_dir)
    assert store.read_amplification() is None
    store = open_store(one_file(table(rows)), index_dir=index_dir, cache=BlockCache(1))
    assert store.read_amplification() is None


@pytest.mark.parametrize(
    ("rows", "masks", "text"),
    [
        ([[1, 2], [9, 4]], None, "outside of 0..4"),
        ([[1], [2, 3, 4]], None, "other lengths"),
        ([[1, 2]], None, "1 rows where 2"),
        ([[1, 2], [3, None]], [[1, 1], [1, 1]], "differ from those admitted"),
        ([[1, 2], [3, 4]], [[1, 1], [1, 2]], "outside of 0..1"),
    ],
)
def test_a_block_that_is_not_what_was_admitted_is_damage(
    opened, tmp_path, write, table, monkeypatch, rows, masks, text
):
    store = opened(write(tmp_path / "a", table([[1, 2], [3, 4]]), "parquet"))
    other = write(tmp_path / "b", table(rows, masks), "parquet")
    initialise = DecodedReader.__init__

    def read_another_file(self, **given):
        source = LocalFiles(root=other.parent).open(other.name)
        initialise(self, **given | {"file": NearBlocks(source, given["manifest"], 0, given["blocks"])})

    monkeypatch.setattr(DecodedReader, "__init__", read_another_file)
    with pytest.raises(StoreDamagedError, match=text):
        store[1]


@pytest.mark.parametrize("form", ["arrow_stream", "arrow_lz4", "parquet"])
def test_admission_holds_a_bounded_part_of_the_store(tmp_path, form):
    rows, length = 6_000, 4_000
    rng = np.random.default_rng(0)
    offsets = pa.array(np.arange(rows + 1, dtype=np.int64) * length)
    ids = pa.LargeListArray.from_arrays(offsets, pa.array(rng.integers(0, 60_000, rows * length, dtype=np.uint16)))
    mask = pa.LargeListArray.from_arrays(offsets, pa.array(np.ones(rows * length, np.int8)))
    table = pa.table({"input_ids": ids, "loss_mask": mask})
    if form == "parquet":
        path = tmp_path / "a.parquet"
        pq.write_table(table, path, compression="none", use_dictionary=False)
    else:
        path = tmp_path / "a.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4" if form == "arrow_lz4" else None)
        with pa.ipc.new_stream(path, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=1000 if form == "arrow_lz4" else rows)
    code = """
        import sys, tracemalloc
        from pathlib import Path
        import pyarrow
        from dataserver.stores import open_store
        tracemalloc.start()
        store = open_store(sys.argv[1], index_dir=Path(sys.argv[2]))
        assert len(store) == 6_000
        print(tracemalloc.get_traced_memory()[1], pyarrow.default_memory_pool().max_memory())
    """
    command = [sys.executable, "-c", textwrap.dedent(code), path, tmp_path / "index"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    numpy_peak, arrow_peak = map(int, said.split())
    assert table.nbytes > 72_000_000
    assert numpy_peak + arrow_peak < 36_000_000, said
