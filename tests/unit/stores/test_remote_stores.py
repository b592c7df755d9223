"""Stores behind a URL: rows, fingerprint and verdicts of the same files on a disk, and no more requests than due."""

import copy
import random

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from view_reading import tokens_of

from dataserver.errors import StoreDamagedError, StoreNotFoundError, StoreRefusedError
from dataserver.storage.disk_cache import DiskCache
from dataserver.storage.memory import MemoryStorage
from dataserver.stores import BlockCache, LossMask, open_store
from dataserver.stores.read_through import CHUNK_BYTES, ReadThrough

ROWS, PER_SHARD, PER_BLOCK = 90, 30, 10


@pytest.fixture
def bucket(tmp_path):
    """Put a directory's files where `memory://` finds them; returns the URL."""
    memory = fsspec.filesystem("memory")
    root = f"/{tmp_path.name}"

    def put(directory):
        for path in directory.rglob("*"):
            if path.is_file():
                memory.pipe_file(f"{root}/{path.relative_to(directory)}", path.read_bytes())
        return f"memory:/{root}"

    yield put
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


@pytest.fixture
def shards(tmp_path, write, table):
    """A directory with a store of three shards in the form that is asked for."""

    def make(form):
        rng = random.Random(5)
        rows = [[rng.randrange(70_000) for _ in range(rng.randrange(20))] for _ in range(ROWS)]
        masks = [[rng.randrange(2) for _ in row] for row in rows]
        text = pa.array(["between the columns"] * ROWS)
        whole = pa.table({"input_ids": rows, "text": text, "loss_mask": masks})
        directory = tmp_path / form
        (directory / "within").mkdir(parents=True)
        for number in range(3):
            part = whole.slice(number * PER_SHARD, PER_SHARD)
            write(directory / ("within" if number == 2 else "") / f"part-{number}", part, form, PER_BLOCK)
        return directory

    return make


def as_lists(store):
    return [(row.input_ids.tolist(), row.loss_mask.tolist()) for row in store]


@pytest.mark.parametrize("loss_mask", list(LossMask))
def test_a_store_behind_a_url_is_the_same_store_as_on_a_disk(tmp_path, shards, bucket, form, loss_mask):
    directory = shards(form)
    local = open_store(directory, loss_mask=loss_mask, index_dir=tmp_path / "a")
    # Both share an index directory, so neither may take the other's tables for its own.
    for index in ("a", "b", "a"):
        remote = open_store(bucket(directory), loss_mask=loss_mask, index_dir=tmp_path / index)
        assert remote.fingerprint == local.fingerprint
        assert [shard.digest for shard in remote.shards] == [shard.digest for shard in local.shards]
        assert as_lists(remote) == as_lists(local)
        assert as_lists(copy.copy(remote)) == as_lists(local)
    view, same = remote.view(7), local.view(7)
    assert view.figures == same.figures
    numbers = np.arange(view.rows)
    assert tokens_of(view, numbers).tolist() == tokens_of(same, numbers).tolist()
    assert view.targets(numbers).tolist() == same.targets(numbers).tolist()


def test_weights_and_images_come_from_a_storage_as_from_a_disk(tmp_path, write, bucket, requests, form):
    rng = random.Random(8)
    rows = [[rng.randrange(900) for _ in range(2 + row % 7)] for row in range(40)]
    with_image = [row % 3 == 0 for row in range(40)]
    table = pa.table(
        {
            "input_ids": rows,
            "loss_weight": pa.array([[rng.random() for _ in row] for row in rows], pa.list_(pa.float32())),
            "pixel_values": pa.array(
                [[[0.5 * row] * 6] * 4 if has else None for row, has in enumerate(with_image)],
                pa.list_(pa.list_(pa.float32())),
            ),
            "image_grid_thw": pa.array(
                [[[1, 2, 2]] if has else None for has in with_image], pa.list_(pa.list_(pa.int64()))
            ),
            "loss_mask": [[1] * len(row) for row in rows],
        }
    )
    directory = tmp_path / "store"
    directory.mkdir()
    write(directory / "a", table, form, 10)
    remote = open_store(bucket(directory), index_dir=tmp_path / "index")
    requests.clear()
    for row, same in zip(remote, open_store(directory, index_dir=tmp_path / "index"), strict=True):
        for name in ("input_ids", "loss_mask", "loss_weight", "pixel_values", "image_grid_thw"):
            np.testing.assert_array_equal(getattr(row, name), getattr(same, name))
    assert len(requests) == 4


def test_files_are_found_and_ignored_by_the_rules_of_a_disk(tmp_path, shards, bucket):
    directory = shards("parquet")
    for name in ("_SUCCESS", "README.md", "part-0.parquet.crc", "meta.json", ".hidden/x.parquet", "_tmp/y.parquet"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(b"no data")
    local = open_store(directory, index_dir=tmp_path / "index")
    remote = open_store(bucket(directory), index_dir=tmp_path / "index")
    assert [shard.path for shard in remote.shards] == [shard.path for shard in local.shards]
    assert remote.ignored == local.ignored
    assert {entry.path for entry in remote.ignored} >= {".hidden/", "_tmp/", "_SUCCESS"}


def test_one_object_is_a_store_and_nothing_is_none(tmp_path, shards, bucket):
    directory = shards("parquet")
    url = bucket(directory)
    alone = open_store(f"{url}/part-1.parquet", index_dir=tmp_path / "index")
    assert as_lists(alone) == as_lists(open_store(directory / "part-1.parquet", index_dir=tmp_path / "index"))
    with pytest.raises(StoreNotFoundError, match="nothing at"):
        open_store(f"{url}/part-9.parquet", index_dir=tmp_path / "index")
    (directory / "strange.bin").write_bytes(b"?")
    with pytest.raises(StoreRefusedError, match=r"strange\.bin"):
        open_store(bucket(directory), index_dir=tmp_path / "index")


def test_admission_reads_every_byte_once_and_a_warm_opening_none(tmp_path, shards, bucket, requests, form):
    directory = shards(form)
    url = bucket(directory)
    open_store(url, index_dir=tmp_path / "index")
    sizes = {str(path.relative_to(directory)): path.stat().st_size for path in directory.rglob("*.*")}
    whole = [request for request in requests if request[1:] == (0, sizes[request[0]])]
    # Besides: what says which columns there are, asked of every shard before any of them is read.
    assert len(whole) <= 2 * len(sizes) and {path for path, _, _ in whole} == set(sizes)
    requests.clear()
    store = open_store(url, index_dir=tmp_path / "index")
    store.view(20)
    assert requests == []


def test_a_block_is_one_request_however_its_rows_are_drawn(tmp_path, shards, bucket, requests, form):
    url = bucket(shards(form))
    open_store(url, index_dir=tmp_path / "index")
    store = open_store(url, index_dir=tmp_path / "index", disk_cache=DiskCache(tmp_path / "blocks", 1 << 30))
    requests.clear()
    for row in random.Random(1).sample(range(ROWS), ROWS):
        assert len(store[row].input_ids) == store.lengths()[row]
    assert len(requests) == len(set(requests)) == ROWS // PER_BLOCK
    again = open_store(url, index_dir=tmp_path / "index", disk_cache=DiskCache(tmp_path / "blocks", 1 << 30))
    requests.clear()
    assert as_lists(again) == as_lists(store)
    assert requests == [], "another process finds them on disk"


@pytest.mark.parametrize("disk_bytes", [0, 3_000, 20_000])
def test_caches_of_any_size_give_the_same_rows(tmp_path, shards, bucket, form, disk_bytes):
    directory = shards(form)
    expected = as_lists(open_store(directory, index_dir=tmp_path / "index"))
    with open_store(bucket(directory), index_dir=tmp_path / "index") as store:
        blocks = BlockCache(int(max(shard.needed_bytes.max() for shard in store.tables.blocks)))
    disk = DiskCache(tmp_path / "blocks", disk_bytes) if disk_bytes else None
    store = open_store(bucket(directory), index_dir=tmp_path / "index", cache=blocks, disk_cache=disk)
    order = random.Random(3).sample(range(ROWS), ROWS)
    for _ in range(2):
        found = {row: store[row] for row in order}
        assert [(found[row].input_ids.tolist(), found[row].loss_mask.tolist()) for row in range(ROWS)] == expected


def test_columns_that_lie_far_apart_are_fetched_by_themselves(tmp_path, bucket, requests):
    wide = pa.array([random.Random(row).randbytes(40_000) for row in range(20)])
    rows = [[row, row + 1] for row in range(20)]
    directory = tmp_path / "store"
    directory.mkdir()
    table = pa.table({"input_ids": rows, "wide": wide, "loss_mask": [[1, 1]] * 20})
    pq.write_table(table, directory / "a.parquet", compression="none", row_group_size=10)
    url = bucket(directory)
    store = open_store(url, index_dir=tmp_path / "index")
    requests.clear()
    assert [row.input_ids.tolist() for row in store] == rows
    assert len(requests) == 4, "two columns of two row groups"
    assert sum(end - begin for _, begin, end in requests) < 2_000


def test_a_flipped_byte_in_an_object_is_never_served(tmp_path, shards, bucket, form):
    """The object keeps its version, as one does that changes on its way or on the storage's disk."""
    directory = shards(form)
    url = bucket(directory)
    expected = as_lists(open_store(url, index_dir=tmp_path / "index"))
    memory = fsspec.filesystem("memory")
    (name,) = [name for name in memory.find(url.removeprefix("memory:/")) if "part-1" in name]
    whole = memory.cat_file(name)
    damages, served = [], 0
    rng = random.Random(form)
    for _ in range(30):
        flipped = bytearray(whole)
        flipped[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        memory.store[name].seek(0)
        memory.store[name].write(bytes(flipped))
        store = open_store(url, index_dir=tmp_path / "index")
        for row in range(PER_SHARD, 2 * PER_SHARD, PER_BLOCK):
            try:
                found = store[row]
            except StoreDamagedError as error:
                damages.append(error.message)
            else:
                assert (found.input_ids.tolist(), found.loss_mask.tolist()) == expected[row]
                served += 1
    unit = "row group" if form == "parquet" else "record batch"
    assert [message for message in damages if "part-1" not in message or unit not in message] == []
    assert len(damages) > 5 and served > 5


def test_an_object_that_was_replaced_is_damage_while_open_and_another_store_afterwards(tmp_path, shards, bucket):
    directory = shards("parquet")
    url = bucket(directory)
    store = open_store(url, index_dir=tmp_path / "index")
    (directory / "part-1.parquet").write_bytes((directory / "part-0.parquet").read_bytes())
    fsspec.filesystem("memory").put(str(directory / "part-1.parquet"), f"{url.removeprefix('memory:/')}/part-1.parquet")
    with pytest.raises(StoreDamagedError, match=r"part-1\.parquet.*row group 0"):
        store[PER_SHARD]
    assert store[0].input_ids.tolist() == open_store(directory, index_dir=tmp_path / "index")[0].input_ids.tolist()
    other = open_store(url, index_dir=tmp_path / "index")
    assert other.fingerprint == open_store(directory, index_dir=tmp_path / "index").fingerprint != store.fingerprint


def test_a_fault_in_an_object_is_refused_in_the_words_of_a_disk(tmp_path, write, table, bucket, form):
    directory = tmp_path / "store"
    directory.mkdir()
    write(directory / "a", table([[1, 2]] * 20), form, 10)
    write(directory / "b", table([[1, 2]] * 13 + [[5, -6]] + [[1, 2]] * 6), form, 10)
    refusals = []
    for place in (directory, bucket(directory)):
        with pytest.raises(StoreRefusedError) as caught:
            open_store(place, index_dir=tmp_path / "index")
        refusals.append((caught.value.message, caught.value.details))
    assert refusals[0][1]["row"] == "33"
    assert refusals[1] == refusals[0]


@pytest.mark.parametrize("cut", [1, 8, 60, 300])
def test_an_object_that_was_cut_off_is_refused(tmp_path, shards, bucket, form, cut):
    directory = shards(form)
    path = next(directory.glob("part-1*"))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(StoreRefusedError, match="part-1"):
        open_store(bucket(directory), index_dir=tmp_path / "index")


def test_two_streams_laid_end_to_end_are_refused(tmp_path, shards, bucket):
    directory = shards("arrow_stream")
    path = directory / "part-0.arrow"
    path.write_bytes(path.read_bytes() + (directory / "part-1.arrow").read_bytes())
    with pytest.raises(StoreRefusedError, match="two files laid end to end"):
        open_store(bucket(directory), index_dir=tmp_path / "index")


def test_lines_are_fetched_once_to_be_named_and_to_be_copied(tmp_path, bucket, requests):
    directory = tmp_path / "lines"
    directory.mkdir()
    for number in range(3):
        rows = [f'{{"input_ids": [{row}, 1, 2], "loss_mask": [1, 1, 1]}}' for row in range(50)]
        (directory / f"{number}.jsonl").write_text("\n".join(rows))
    store = open_store(bucket(directory), index_dir=tmp_path / "index")
    assert [row.input_ids[0] for row in store] == [*range(50)] * 3
    size = sum(path.stat().st_size for path in directory.iterdir())
    # Once before that, what tells the columns: the beginning of each file.
    assert sum(end - begin for _, begin, end in requests) <= 2 * size + 3 * 4


class Bytes:
    """A source in memory that notes what is read of it."""

    name, local_path = "x", None

    def __init__(self, data):
        self.data, self.size, self.reads = data, len(data), []

    def read(self, begin, end):
        self.reads.append((begin, end))
        return self.data[begin:end]


def test_a_large_file_is_read_through_once_and_what_is_wanted_is_kept():
    source = Bytes(np.random.default_rng(0).bytes(3 * CHUNK_BYTES + 17))
    passed = []
    with ReadThrough(source, passed.append) as through:
        footer = through.read(source.size - 9, source.size)
        spans = [(5, CHUNK_BYTES + 3), (2 * CHUNK_BYTES - 1, 2 * CHUNK_BYTES + 1)]
        through.reach(spans)
        assert [through.read(*span) for span in spans] == [source.data[begin:end] for begin, end in spans]
        assert not set(spans) & set(source.reads), "what was wanted is held"
        through.reach([])
        import xxhash

        assert through.hexdigest() == xxhash.xxh3_128_hexdigest(source.data)
    assert footer == source.data[-9:]
    assert sum(passed) == source.size
    assert sum(end - begin for begin, end in source.reads) == source.size + 9
