"""A pass over a store that was killed goes on at the shard where it was, and comes to the same index."""

import random
import shutil
import signal
import subprocess
import sys
import textwrap

import fsspec
import pyarrow as pa
import pytest

from dataserver.errors import StoreRefusedError
from dataserver.stores import open_store, scan, shard_results

SHARDS, PER_SHARD = 4, 30


@pytest.fixture(autouse=True)
def every_shard_is_kept(monkeypatch):
    monkeypatch.setattr(shard_results, "WORTH_BYTES", 0)


@pytest.fixture
def shards(tmp_path, write):
    def make(form):
        directory = tmp_path / "store"
        directory.mkdir()
        rng = random.Random(2)
        for number in range(SHARDS):
            rows = [[rng.randrange(70_000) for _ in range(rng.randrange(9))] for _ in range(PER_SHARD)]
            masks = [[rng.randrange(2) for _ in row] for row in rows]
            write(directory / f"part-{number}", pa.table({"input_ids": rows, "loss_mask": masks}), form, 10)
        return directory

    return make


@pytest.fixture
def scanned(monkeypatch):
    """Shards that were scanned, in order; `stop_at` is one at which the pass breaks off."""

    class Scanned(list):
        stop_at = None

    seen = Scanned()
    scan_file = scan._scan_file

    def noting(found, number, relative):
        if relative.startswith(f"part-{seen.stop_at}."):
            raise KeyboardInterrupt
        seen.append(relative.partition(".")[0])
        return scan_file(found, number, relative)

    monkeypatch.setattr(scan, "_scan_file", noting)
    return seen


def facts(store):
    rows = [(row.input_ids.tolist(), row.loss_mask.tolist()) for row in store]
    figures = (store.rows, store.tokens, store.longest_row, store.max_token, store.max_token_row)
    return rows, figures, store.length_histogram(), store.figures(5), store.fingerprint, store._manifest.array_digests


@pytest.mark.parametrize("place", ["disk", "storage"])
def test_shards_that_were_done_are_not_scanned_again(tmp_path, shards, scanned, form, place):
    directory = where = shards(form)
    if place == "storage":
        where = f"memory://{tmp_path.name}"
        for path in directory.iterdir():
            fsspec.filesystem("memory").pipe_file(f"/{tmp_path.name}/{path.name}", path.read_bytes())
    whole = facts(open_store(where, index_dir=tmp_path / "whole"))
    scanned.clear()
    scanned.stop_at = 2
    with pytest.raises(KeyboardInterrupt):
        open_store(where, index_dir=tmp_path / "index")
    assert scanned == ["part-0", "part-1"]
    scanned.stop_at = None
    done = []
    resumed = open_store(where, index_dir=tmp_path / "index", progress=lambda *bytes_done: done.append(bytes_done))
    assert scanned == ["part-0", "part-1", "part-2", "part-3"]
    assert facts(resumed) == whole
    assert done[-1][0] == done[-1][1]
    assert list((tmp_path / "index" / "shards").iterdir()) == [], "nothing is kept of a store that is whole"


def test_a_shard_that_changed_meanwhile_is_scanned_again_and_others_are_not(tmp_path, shards, scanned):
    directory = shards("parquet")
    scanned.stop_at = 3
    with pytest.raises(KeyboardInterrupt):
        open_store(directory, index_dir=tmp_path / "index")
    scanned.clear()
    scanned.stop_at = None
    shutil.copyfile(directory / "part-3.parquet", directory / "part-1.parquet")
    store = open_store(directory, index_dir=tmp_path / "index")
    assert scanned == ["part-1", "part-3"]
    assert store.fingerprint == open_store(directory, index_dir=tmp_path / "other").fingerprint


def test_what_was_kept_and_is_damaged_is_scanned_again(tmp_path, shards, scanned):
    directory = shards("parquet")
    scanned.stop_at = 3
    with pytest.raises(KeyboardInterrupt):
        open_store(directory, index_dir=tmp_path / "index")
    for path in (tmp_path / "index" / "shards").glob("*/lengths.i4"):
        data = bytearray(path.read_bytes())
        data[0] ^= 1
        path.write_bytes(bytes(data))
    scanned.clear()
    scanned.stop_at = None
    store = open_store(directory, index_dir=tmp_path / "index")
    assert sorted(set(scanned)) == ["part-0", "part-1", "part-2", "part-3"]
    assert facts(store) == facts(open_store(directory, index_dir=tmp_path / "other"))


def test_a_fault_in_a_later_shard_names_the_row_of_the_whole_store(tmp_path, shards, write, table):
    directory = shards("parquet")
    write(directory / "part-4", table([[1, 2]] * 7 + [[3, -4]]), "parquet", 5)
    for _ in range(2):
        with pytest.raises(StoreRefusedError, match=r"row group 1, row 7 of the shard") as caught:
            open_store(directory, index_dir=tmp_path / "index")
        assert caught.value.details["row"] == str(SHARDS * PER_SHARD + 7)


def test_a_killed_process_leaves_what_it_was_done_with(tmp_path, shards, scanned):
    directory = shards("parquet")
    code = f"""
        import os, signal
        from dataserver.stores import open_store, scan, shard_results
        shard_results.WORTH_BYTES = 0
        scan_file = scan._scan_file
        def dying(found, number, relative):
            if relative == "part-2.parquet":
                os.kill(os.getpid(), signal.SIGKILL)
            return scan_file(found, number, relative)
        scan._scan_file = dying
        from pathlib import Path
        open_store({str(directory)!r}, index_dir=Path({str(tmp_path / "index")!r}))
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert ended.returncode == -signal.SIGKILL
    store = open_store(directory, index_dir=tmp_path / "index")
    assert scanned == ["part-2", "part-3"]
    assert facts(store) == facts(open_store(directory, index_dir=tmp_path / "other"))
