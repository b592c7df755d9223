"""Stores of which only footers are read at first: the same rows, verdicts and faults, each when its block is needed."""

import copy
import os
import random
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from view_reading import read_view

from dataserver.errors import (
    InvalidRequestError,
    InvalidSpecError,
    StoreDamagedError,
    StoreRefusedError,
)
from dataserver.run_spec import LongRows
from dataserver.storage.disk_cache import DiskCache
from dataserver.storage.memory import MemoryStorage
from dataserver.stores import Admission, BlockCache, LossMask, open_store
from dataserver.stores.unknown_blocks import UnknownBlocksError, when_known

ROWS, PER_SHARD, PER_BLOCK = 90, 30, 10


@pytest.fixture(params=["arrow_stream", "parquet"])
def form(request):
    return request.param


@pytest.fixture
def directory(tmp_path, write, form):
    """A store of three shards with empty rows, rows without a target, and rows of up to 20 tokens."""
    rng = random.Random(5)
    rows = [[rng.randrange(70_000) for _ in range(rng.randrange(20))] for _ in range(ROWS)]
    masks = [[int(rng.randrange(4) == 0) for _ in row] for row in rows]
    weights = pa.array([[rng.random() for _ in row] for row in rows], pa.list_(pa.float32()))
    whole = pa.table({"input_ids": rows, "loss_weight": weights, "loss_mask": masks})
    found = tmp_path / "store"
    found.mkdir()
    for number in range(3):
        write(found / f"part-{number}", whole.slice(number * PER_SHARD, PER_SHARD), form, PER_BLOCK)
    return found


@pytest.fixture
def bucket(tmp_path):
    """Put a directory's files where `memory://` finds them; returns the URL."""
    memory = fsspec.filesystem("memory")
    root = f"/{tmp_path.name}-lazy"

    def put(directory):
        for path in directory.iterdir():
            memory.pipe_file(f"{root}/{path.name}", path.read_bytes())
        return f"memory:/{root}"

    yield put
    if memory.exists(root):
        memory.rm(root, recursive=True)


@pytest.fixture
def requests(monkeypatch):
    """What was read of which object, in order."""
    seen = []
    read = MemoryStorage.read

    def noting(self, info, begin, end):
        seen.append((info.path, begin, end))
        return read(self, info, begin, end)

    monkeypatch.setattr(MemoryStorage, "read", noting)
    return seen


def lazily(path, index_dir, **options):
    return open_store(path, admission=Admission.LAZY, index_dir=index_dir, **options)


def as_lists(store):
    return [(row.input_ids.tolist(), row.loss_mask.tolist(), row.loss_weight.tolist()) for row in store]


def seen_of(view, rows):
    """All that a run asks of rows, once their blocks are known."""
    rows = np.asarray(rows, dtype=np.int64)

    def ask():
        served = rows[view.lengths(rows) > 0]
        parts = read_view(view, served, weights=True)
        facts = (view.lengths(served), view.targets(served), view.weights(served), view.store_rows(served))
        return [fact.tolist() for fact in (*facts, parts.tokens, parts.loss_mask)]

    return when_known(ask)


@pytest.mark.parametrize("form", ["arrow_file", "arrow_stream", "arrow_lz4", "parquet"], indirect=True)
@pytest.mark.parametrize("where", ["disk", "storage"])
def test_a_lazy_store_holds_the_rows_of_the_eager_one(tmp_path, directory, bucket, where):
    path = directory if where == "disk" else bucket(directory)
    lazy = lazily(path, tmp_path / "lazy")
    eager = open_store(directory, index_dir=tmp_path / "eager")
    assert len(lazy) == len(eager)
    assert as_lists(lazy) == as_lists(eager)
    assert as_lists(copy.copy(lazy)) == as_lists(eager)
    assert lazy[17].input_ids.tolist() == eager[17].input_ids.tolist()
    assert lazy.reasons(0, ROWS, 8) == eager.reasons(0, ROWS, 8)


@pytest.mark.parametrize("long_rows", [LongRows.TRUNCATE, LongRows.DROP])
@pytest.mark.parametrize("max_length", [3, 8, 40])
def test_what_is_served_of_it_is_what_is_served_of_the_eager_one(tmp_path, directory, max_length, long_rows):
    lazy = lazily(directory, tmp_path / "lazy").view(max_length, long_rows)
    eager = open_store(directory, index_dir=tmp_path / "eager").view(max_length, long_rows)
    assert seen_of(lazy, np.arange(ROWS)) == seen_of(eager, np.arange(eager.rows))
    assert lazy.rows == ROWS > eager.rows


def test_stores_whose_footers_are_alike_are_not_taken_for_each_other(tmp_path, index_dir, write):
    stores = []
    for name, token in (("train", 100), ("held-out", 900)):
        (tmp_path / name).mkdir()
        rows = pa.table({"input_ids": [[token, token + row] for row in range(20)], "loss_mask": [[0, 1]] * 20})
        write(tmp_path / name / "data", rows, "arrow_stream", PER_BLOCK)
        stores.append(open_store(tmp_path / name, index_dir=index_dir, admission=Admission.LAZY))
    assert stores[0].fingerprint == stores[1].fingerprint
    for store, token in zip(stores, (100, 900), strict=True):
        lengths = when_known(partial(store.view(2).lengths, np.arange(20)))
        assert lengths.tolist() == [2] * 20
        assert [row.input_ids.tolist() for row in store.read_rows([19, 0])] == [[token, token + 19], [token, token]]


def test_every_row_is_a_target_where_the_mask_says_all(tmp_path, directory):
    lazy = lazily(directory, tmp_path / "lazy", loss_mask=LossMask.ALL).view(8)
    eager = open_store(directory, index_dir=tmp_path / "eager", loss_mask=LossMask.ALL).view(8)
    assert seen_of(lazy, np.arange(ROWS)) == seen_of(eager, np.arange(eager.rows))


def test_only_footers_are_read_before_rows_are_asked_for_and_each_block_once(tmp_path, directory, bucket, requests):
    url = bucket(directory)
    view = lazily(url, tmp_path / "index").view(8)
    sizes = {path.name: path.stat().st_size for path in directory.iterdir()}
    at_start, requests[:] = list(requests), []
    assert len(at_start) <= 3 * (2 + PER_SHARD // PER_BLOCK)
    assert {path for path, _, _ in at_start} == set(sizes)
    seen_of(view, np.arange(PER_BLOCK))
    assert len(requests) == 1
    seen_of(view, np.arange(ROWS))
    assert len(requests) == ROWS // PER_BLOCK
    # Nobody finds out again what is known: another process reads only what it serves.
    requests.clear()
    again = lazily(url, tmp_path / "index").view(8)
    assert again.lengths(np.arange(ROWS)).tolist() == view.lengths(np.arange(ROWS)).tolist()
    assert again.targets(np.arange(ROWS)).tolist() == view.targets(np.arange(ROWS)).tolist()
    assert requests == []


def test_what_was_fetched_for_a_check_is_in_the_disk_cache(tmp_path, directory, bucket, requests):
    url, disk_cache = bucket(directory), DiskCache(tmp_path / "blocks", 1 << 30)
    first = lazily(url, tmp_path / "a", disk_cache=disk_cache)
    rows = as_lists(first)
    requests.clear()
    first.close()
    assert as_lists(first) == rows
    assert as_lists(lazily(url, tmp_path / "a", disk_cache=DiskCache(tmp_path / "blocks", 1 << 30))) == rows
    assert requests == []


def test_two_servers_with_indexes_of_their_own_agree(tmp_path, directory):
    first, second = (lazily(directory, tmp_path / name) for name in ("a", "b"))
    assert first.fingerprint == second.fingerprint != open_store(directory, index_dir=tmp_path / "c").fingerprint
    copied = tmp_path / "elsewhere"
    copied.mkdir()
    for path in directory.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    assert lazily(copied, tmp_path / "a").fingerprint == first.fingerprint


def test_rows_are_unknown_until_somebody_may_wait_for_them(tmp_path, directory):
    view = lazily(directory, tmp_path / "index").view(8)
    rows = np.array([5, 6, 25, 89])
    for ask in (view.lengths, view.targets, view.weights, view.highest_token, view.blocks):
        with pytest.raises(UnknownBlocksError) as caught:
            ask(rows)
        assert [touch.block for touch in caught.value.touches] == [0, 2, 8]
    for touch in caught.value.touches:
        touch()
    assert len(view.lengths(rows)) == 4
    with pytest.raises(UnknownBlocksError):
        view.lengths(np.array([10]))


FAULTS = {
    "loss_mask length": ({"loss_mask": [[1] * 4] * 24 + [[1, 0]] + [[1] * 4] * 15}, 24, "loss_mask"),
    "only 0s and 1s": ({"loss_mask": [[1] * 4] * 24 + [[1, 2, 0, 0]] + [[1] * 4] * 15}, 24, "loss_mask"),
    "negative": ({"input_ids": [[1] * 4] * 33 + [[3, -3, 3, 3]] + [[1] * 4] * 6}, 33, "input_ids"),
    "null": ({"input_ids": [[1] * 4] * 20 + [None] + [[1] * 4] * 19}, 20, "input_ids"),
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_is_told_when_its_block_is_needed_as_admission_tells_it(tmp_path, one_file, table, form, text):
    more, row, column = FAULTS[text]
    columns = {"input_ids": [[1] * 4] * 40, "loss_mask": [[1] * 4] * 40} | more
    path = one_file(table(columns["input_ids"], columns["loss_mask"]), form, PER_BLOCK)
    with pytest.raises(StoreRefusedError, match=text) as refused:
        open_store(path, index_dir=tmp_path / "eager")
    for _ in range(2):
        lazy = lazily(path, tmp_path / "lazy")
        assert lazy[row // 10 * 10 - 1].input_ids.tolist() == [1] * 4
        for ask in (partial(lazy.read_rows, [row // 10 * 10]), partial(seen_of, lazy.view(8), [row])):
            with pytest.raises(StoreDamagedError) as damaged:
                ask()
            assert damaged.value.message == refused.value.message
            assert damaged.value.details == refused.value.details
            assert damaged.value.details["row"] == str(row)
            assert damaged.value.details["column"] == column


def test_the_first_fault_in_row_order_is_told_of_several_blocks(tmp_path, one_file, table):
    masks = [[1] * 4] * 40
    masks[15] = masks[35] = [3] * 4
    view = lazily(one_file(table([[1] * 4] * 40, masks), "parquet", PER_BLOCK), tmp_path / "index").view(8)
    for _ in range(5):
        with pytest.raises(StoreDamagedError, match="Row 15: loss_mask must contain only 0s and 1s"):
            seen_of(view, np.arange(40)[::-1])


def test_a_long_row_is_told_where_none_is_allowed_also_when_its_block_is_known(tmp_path, directory):
    for _ in range(2):
        view = lazily(directory, tmp_path / "index").view(8, LongRows.REFUSE)
        with pytest.raises(StoreDamagedError, match="long_rows = refuse"):
            seen_of(view, np.arange(ROWS))


def test_the_highest_token_of_the_blocks_is_told(tmp_path, one_file, table):
    rows = [[row % 10] * 3 for row in range(40)]
    rows[25] = [7, 99, 7]
    view = lazily(one_file(table(rows), "parquet", PER_BLOCK), tmp_path / "index").view(8)
    assert when_known(lambda: view.highest_token(np.array([3, 12]))) == (9, 9)
    assert when_known(lambda: view.highest_token(np.array([3, 21]))) == (99, 25)


def test_a_byte_that_changed_after_its_block_was_checked_is_noticed(tmp_path, one_file, table):
    path = one_file(table([[row] * 40 for row in range(40)]), "arrow_file", PER_BLOCK)
    store = lazily(path, tmp_path / "index")
    assert store[3].input_ids.tolist() == [3] * 40
    data = path.read_bytes()
    at = data.index(np.full(40, 3, dtype="<i4").tobytes())
    path.write_bytes(data[:at] + b"\x05" + data[at + 1 :])
    again = lazily(path, tmp_path / "index")
    assert again.fingerprint == store.fingerprint
    assert again[13].input_ids.tolist() == [13] * 40
    with pytest.raises(StoreDamagedError, match="record batch 0: bytes"):
        again[3]


def test_a_store_whose_footers_say_that_it_is_damaged_is_refused_at_once(tmp_path, one_file, table):
    path = one_file(table([[1, 2]] * 40), "arrow_stream", PER_BLOCK)
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    with pytest.raises(StoreRefusedError, match="without an end mark"):
        lazily(path, tmp_path / "index")
    path.write_bytes(whole + whole)
    with pytest.raises(StoreRefusedError, match="follow after the end"):
        lazily(path, tmp_path / "index")


def test_what_is_not_known_is_not_made_up(tmp_path, directory):
    store = lazily(directory, tmp_path / "index")
    for ask in (store.lengths, lambda: store.figures(8), lambda: store.check_vocab(100)):
        with pytest.raises(InvalidRequestError, match="dataserver store index"):
            ask()
    with pytest.raises(InvalidSpecError, match="split"):
        store.view(8, LongRows.SPLIT)
    assert store.read_amplification() is None


def test_stores_that_have_to_be_read_first_are_refused(tmp_path, write, table):
    images = table(
        [[1, 2]],
        pixel_values=pa.array([None], pa.list_(pa.float32())),
        image_grid_thw=pa.array([None], pa.list_(pa.int64())),
    )
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"input_ids": [1, 2], "loss_mask": [1, 1]}\n')
    for path in (write(tmp_path / "images", images, "parquet"), lines):
        with pytest.raises(StoreRefusedError, match="cannot be admitted lazily"):
            lazily(path, tmp_path / "index")


def test_tokens_take_two_bytes_where_no_column_can_hold_more(tmp_path, write, table):
    narrow = write(tmp_path / "narrow", table([[1, 2]], ids_type=pa.list_(pa.uint16())), "parquet")
    assert lazily(narrow, tmp_path / "index").token_bytes == 2
    wide = write(tmp_path / "wide", table([[1, 2]]), "parquet")
    assert lazily(wide, tmp_path / "index").token_bytes == 4


def test_a_block_that_the_cache_cannot_hold_is_told_by_its_size(tmp_path, write, table):
    path = write(tmp_path / "store", table([[7] * 100_000]), "parquet")
    store = lazily(path, tmp_path / "index", cache=BlockCache(1 << 18))
    with pytest.raises(StoreDamagedError, match="block_cache_bytes"):
        store[0]


def test_threads_that_want_the_same_blocks_check_each_once(tmp_path, directory, bucket, requests):
    view = lazily(bucket(directory), tmp_path / "index").view(8)
    requests.clear()
    found = []
    threads = [threading.Thread(target=lambda: found.append(seen_of(view, np.arange(ROWS)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 4
    assert len(requests) == len(set(requests)) == ROWS // PER_BLOCK


def test_the_index_may_be_deleted_at_any_time(tmp_path, directory):
    import shutil

    store = lazily(directory, tmp_path / "index")
    rows = as_lists(store)
    view = store.view(8)
    shutil.rmtree(tmp_path / "index")
    assert as_lists(store) == rows
    assert seen_of(view, np.arange(ROWS)) == seen_of(lazily(directory, tmp_path / "index").view(8), np.arange(ROWS))


@pytest.mark.parametrize("name", ["lengths.i4", "known.i8", "spans.i8", "blocks.i8", "targets.i4"])
def test_a_broken_index_is_found_out_and_made_anew(tmp_path, directory, name):
    rows = as_lists(lazily(directory, tmp_path / "index"))
    [index] = (tmp_path / "index" / "lazy").iterdir()
    data = bytearray((index / name).read_bytes())
    for at in range(len(data) // 4, len(data) // 2):
        data[at] ^= 0x55
    (index / name).write_bytes(data)
    again = lazily(directory, tmp_path / "index")
    assert as_lists(again) == rows
    (index / name).write_bytes(data[:-4])
    assert as_lists(lazily(directory, tmp_path / "index")) == rows


PARTY = """
import sys, hashlib
from pathlib import Path
import numpy as np
from dataserver.stores import Admission, open_store
from dataserver.stores.destination import Destination
from dataserver.stores.unknown_blocks import when_known

def tokens(at):
    into = Destination.end_to_end(view.lengths(at), token_bytes=4)
    view.read(at, view.lengths(at), into)
    return into.tokens.tolist()

store = open_store(sys.argv[1], admission=Admission.LAZY, index_dir=Path(sys.argv[2]))
view = store.view(8)
order = np.random.default_rng(int(sys.argv[3])).permutation(len(store))
print("ready", flush=True)
sys.stdin.readline()
found = {}
for row in order:
    at = np.array([row])
    served = when_known(lambda: (view.lengths(at).tolist(), view.targets(at).tolist()))
    found[int(row)] = (served, when_known(lambda: tokens(at)))
    if len(sys.argv) > 4:
        print("row", flush=True)
print(hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest(), flush=True)
"""


def start_party(directory: Path, index: Path, seed: int, *more: str) -> subprocess.Popen:
    party = subprocess.Popen(
        [sys.executable, "-c", PARTY, str(directory), str(index), str(seed), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if party.stdout.readline() != "ready\n":
        party.kill()
        party.communicate()
        raise AssertionError("it did not come to its store")
    return party


@pytest.mark.parametrize("form", ["parquet"], indirect=True)
def test_processes_share_an_index_and_one_that_is_killed_leaves_nothing_wrong(tmp_path, directory):
    index = tmp_path / "index"
    killed = start_party(directory, index, 1, "rows")
    parties = [start_party(directory, index, seed) for seed in (2, 3)]
    try:
        killed.stdin.write("\n")
        killed.stdin.flush()
        for _ in range(20):
            assert killed.stdout.readline() == "row\n"
        for party in parties:
            party.stdin.write("\n")
            party.stdin.flush()
        os.kill(killed.pid, signal.SIGKILL)
        digests = [party.communicate(timeout=60)[0] for party in parties]
    finally:
        for party in (killed, *parties):
            party.kill()
            party.communicate()
    assert digests[0] == digests[1] != ""
    alone = start_party(directory, tmp_path / "alone", 4)
    assert alone.communicate("\n", timeout=60)[0] == digests[0]
