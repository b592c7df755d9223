"""Rows that are read take the memory of rows: a pass holds a part of the store, a kept row holds itself."""

import gc
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataserver.stores import BlockCache, open_store

LENGTH = 8_000


def write_long_rows(path: Path, form: str, rows: int) -> int:
    """Rows of `LENGTH` tokens, 50 in a block; returns their bytes, of 4 a token and 1 of mask."""
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * LENGTH)
    tokens = np.random.default_rng(0).integers(0, 150_000, rows * LENGTH, dtype=np.int32)
    ids = pa.ListArray.from_arrays(offsets, pa.array(tokens))
    mask = pa.ListArray.from_arrays(offsets, pa.array(np.ones(rows * LENGTH, np.int8)))
    table = pa.table({"input_ids": ids, "loss_mask": mask})
    if form == "parquet":
        pq.write_table(table, path, row_group_size=50, use_dictionary=False)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=50)
    return rows * LENGTH * 5


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_pass_over_long_rows_holds_a_bounded_part_of_the_store(tmp_path, form):
    """Measured: what numpy and Arrow hold at most, together, with a cache of a quarter of the store."""
    path = tmp_path / f"rows.{form}"
    size = write_long_rows(path, form, rows=1500)
    open_store(path, index_dir=tmp_path / "index").close()
    code = """
        import sys, tracemalloc
        from pathlib import Path
        import pyarrow
        from dataserver.stores import BlockCache, open_store
        store = open_store(sys.argv[1], index_dir=Path(sys.argv[2]), cache=BlockCache(16_000_000))
        store[0]  # machine code is loaded by the first read, and is not counted
        tracemalloc.start()
        assert sum(len(row.input_ids) for row in store) == store.tokens
        print(tracemalloc.get_traced_memory()[1], pyarrow.default_memory_pool().max_memory())
    """
    command = [sys.executable, "-c", textwrap.dedent(code), path, tmp_path / "index"]
    numpy_peak, arrow_peak = map(int, subprocess.check_output(command, text=True).split())
    assert size == 60_000_000
    # Two times the million tokens that a pass reads at a time, and the cache where blocks are decoded.
    assert numpy_peak + arrow_peak < 14_000_000 + (16_000_000 if form == "parquet" else 0)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_kept_rows_hold_nothing_but_themselves(tmp_path, form):
    path = tmp_path / f"rows.{form}"
    write_long_rows(path, form, rows=500)
    with open_store(path, index_dir=tmp_path / "index") as store:
        store[0]  # machine code is loaded by the first read, and is not counted
    tracemalloc.start()
    try:
        store = open_store(path, index_dir=tmp_path / "index", cache=BlockCache(30_000_000))
        kept = [store[row] for row in range(0, 500, 50)]
        store.close()
        del store
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(kept) * LENGTH * 5 <= held < len(kept) * LENGTH * 5 + 300_000
    maps = Path("/proc/self/maps")
    assert not (maps.exists() and str(path) in maps.read_text())
