"""Parquet and compressed Arrow: one decode per touched block, bounded bytes, and bytes that changed are noticed."""

import subprocess
import sys
import textwrap
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataserver.errors import StoreDamagedError, StoreRefusedError
from dataserver.stores import block_cache
from dataserver.stores.block_cache import BlockCache, DecodedBlock
from dataserver.stores.decoded import DecodedReader
from dataserver.stores.parquet_file import ParquetFile


def block(size):
    return DecodedBlock(tokens=np.zeros(size, np.uint16), mask=None, starts=np.zeros(1, np.int64))


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


def test_the_least_recently_used_block_goes_first_and_bytes_are_counted():
    cache = BlockCache(limit_bytes=1000)
    made = []

    def get(number, size=150):
        cache.get((0, number), lambda: made.append(number) or block(size))

    for number in (1, 2, 3):
        get(number)
    assert cache.held_bytes == 3 * 308
    get(1)
    get(4)
    get(1)
    get(2)
    assert made == [1, 2, 3, 4, 2]
    assert cache.held_bytes <= 1000
    get(5, size=5000)
    assert cache.held_bytes == 10_008, "one block is held whatever its size"
    cache.clear()
    assert cache.held_bytes == 0


def test_threads_that_want_one_block_decode_it_once():
    cache = BlockCache()
    entered, go, made = threading.Event(), threading.Event(), []

    def decode():
        entered.set()
        assert go.wait(10)
        made.append(1)
        return block(1)

    threads = [threading.Thread(target=cache.get, args=((0, 0), decode)) for _ in range(4)]
    threads[0].start()
    assert entered.wait(10)
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(10)
    assert made == [1]


def test_a_decode_that_fails_is_tried_again_by_the_next():
    cache = BlockCache()

    def fail():
        raise StoreDamagedError("broken")

    for _ in range(2):
        with pytest.raises(StoreDamagedError):
            cache.get((0, 0), fail)
    assert cache.get((0, 0), lambda: block(1)).nbytes == 10


def test_a_block_above_the_bound_is_refused_at_admission(opened, one_file, table, monkeypatch):
    monkeypatch.setattr(block_cache, "CACHE_BYTES", 1000)
    path = one_file(table([[1] * 50] * 6), "parquet", rows_per_block=3)
    assert len(opened(path)) == 6
    path = one_file(table([[1] * 100] * 6), "parquet", rows_per_block=3)
    with pytest.raises(StoreRefusedError, match=r"row group 0: its 300 tokens take 1524 bytes decoded"):
        opened(path)


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
        initialise(self, **given | {"path": other})

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
