"""A server whose stores lie behind a URL: the same bytes as from a disk, and one slow storage holds up nobody else."""

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import fsspec
import pytest
from serverlab import metric

from dataserver.client import DataClient
from dataserver.config import parse_config
from dataserver.errors import StoreDamagedError, UnavailableError
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Shuffle, Source
from dataserver.storage.memory import MemoryStorage
from dataserver.streaming.fetches import LOADS_FAR_AHEAD, STEPS_DUE
from dataserver.testing import RunningServer, running_server, write_store

ROWS, SHARDS = 240, 12
PATIENCE_S = 60.0


@pytest.fixture
def bucket(tmp_path):
    """A directory's files behind `memory://`, which this process's servers see too."""
    memory = fsspec.filesystem("memory")
    roots = set()

    def put(directory, name=""):
        root = f"/{tmp_path.name}/{directory.name}{name}"
        roots.add(root)
        for path in directory.iterdir():
            memory.pipe_file(f"{root}/{path.name}", path.read_bytes())
        return f"memory:/{root}"

    yield put
    for root in roots:
        memory.rm(root, recursive=True)


@pytest.fixture
def parquet(tmp_path):
    lengths = [3 + row % 17 for row in range(ROWS)]
    return write_store(tmp_path / "chat", lengths=lengths, format="parquet", shards=SHARDS)


class Storages:
    """What is read of all storages, and whether those of some paths answer. `delay_s`: how long each read takes."""

    def __init__(self):
        self.reads = []
        self.delay_s = 0.0
        self.stalled = ""
        self.refused = ""
        self.waiting = threading.Semaphore(0)
        self.released = threading.Event()

    def before(self, storage, info, begin, end):
        self.reads.append((storage.url, info.path, begin, end))
        if self.refused and self.refused in storage.url:
            raise UnavailableError(f"'{storage.url}/{info.path}' was not read within 1 s: the test says so.")
        if self.stalled and self.stalled in storage.url:
            self.waiting.release()
            self.released.wait(PATIENCE_S)
        if self.delay_s:
            time.sleep(self.delay_s)


@pytest.fixture
def storages(monkeypatch):
    found = Storages()
    read = MemoryStorage.read

    def noting(self, info, begin, end):
        found.before(self, info, begin, end)
        return read(self, info, begin, end)

    monkeypatch.setattr(MemoryStorage, "read", noting)
    yield found
    found.released.set()


def a_run(*, shuffle=Shuffle.FULL, store="chat", **batch):
    return RunSpec(
        order=OrderSpec(sources=(Source(store=store),), max_length=64, seed=3, shuffle=shuffle),
        batch=BatchSpec(**{"step_tokens": 200, "micro_batch_tokens": 64, "max_epochs": 2} | batch),
    )


def consume(endpoint, spec, *, name="r", ranks=1):
    """A digest of every byte that each rank is served, in order."""
    with DataClient(endpoint, patience_s=PATIENCE_S) as client:
        client.create_run(name, spec)
        attempt = client.begin_attempt(name, resume=False, world_size=ranks, dp_world_size=ranks, holder="h")
        digests = []
        for rank in range(ranks):
            digest = hashlib.sha256()
            with client.stream(name, attempt, world_rank=rank, dp_rank=rank, next_step=1, credits=4) as stream:
                for step in stream:
                    for micro_batch in step:
                        for array in (micro_batch.tokens, micro_batch.loss_mask, micro_batch.cu_seqlens):
                            digest.update(array.tobytes())
                    stream.ack(step)
            digests.append(digest.hexdigest())
        return digests


@pytest.mark.parametrize(
    "caches",
    [
        {},
        {"disk_cache_bytes": 0},
        {"disk_cache_bytes": 4_000},
        {"block_cache_bytes": 2**20},
    ],
)
def test_a_remote_store_is_served_as_a_local_one(tmp_path, parquet, bucket, caches):
    settings = {"disk_cache_dir": tmp_path / "blocks"} | caches
    with running_server({"chat": parquet}) as server:
        expected = consume(server.endpoint, a_run())
    url = bucket(parquet)
    for _ in range(2):
        with running_server({"chat": url}, **settings) as server:
            assert consume(server.endpoint, a_run()) == expected


def test_a_store_in_s3_is_served_as_a_local_one(tmp_path, parquet, s3):
    for path in parquet.iterdir():
        s3.put("serving", f"chat/{path.name}", path.read_bytes())
    with running_server({"chat": parquet}) as server:
        expected = consume(server.endpoint, a_run())
    settings = {
        "listen": "127.0.0.1:0",
        "metrics_listen": "",
        "ledger": f"sqlite:///{tmp_path}/ledger.db",
        "stores": {"chat": {"path": "s3://serving/chat", "storage": s3.options}},
        "index_dir": tmp_path / "index",
        "disk_cache_dir": tmp_path / "blocks",
    }
    server = RunningServer(parse_config(settings))
    server.start()
    try:
        assert consume(server.endpoint, a_run()) == expected
    finally:
        server.stop()


def test_two_servers_share_a_disk_cache_and_a_row_group_is_fetched_once(tmp_path, parquet, bucket, storages):
    url, settings = bucket(parquet), {"disk_cache_dir": tmp_path / "blocks", "index_dir": tmp_path / "index"}
    with running_server({"chat": url}, **settings) as first, running_server({"chat": url}, **settings) as second:
        storages.reads.clear()
        assert consume(first.endpoint, a_run()) == consume(second.endpoint, a_run())
    assert len(storages.reads) == len(set(storages.reads)) == SHARDS


def test_what_came_of_reads_through_the_disk_cache_is_told(tmp_path, parquet, bucket):
    settings = {"disk_cache_dir": tmp_path / "blocks", "metrics_listen": "127.0.0.1:0", "block_cache_bytes": 2**20}
    url = bucket(parquet)
    for outcome in ("misses", "hits"):
        with running_server({"chat": url}, **settings) as server:
            consume(server.endpoint, a_run())
            assert metric(server, "dataserver_disk_cache_total", outcome=outcome) == SHARDS


def test_a_storage_that_hangs_holds_up_no_other_run(tmp_path, parquet, bucket, storages):
    slow, quick = bucket(parquet, "-slow"), bucket(parquet, "-quick")
    with running_server({"slow": slow, "quick": quick}, disk_cache_dir=tmp_path / "blocks") as server:
        storages.stalled = "-slow"
        stuck = threading.Thread(target=consume, args=(server.endpoint, a_run(store="slow")), kwargs={"name": "slow"})
        stuck.start()
        for _ in range(2):
            assert storages.waiting.acquire(timeout=PATIENCE_S)
        served = consume(server.endpoint, a_run(store="quick"), name="quick")
        assert len(served) == 1
        assert stuck.is_alive()
        storages.released.set()
        stuck.join()


def test_a_storage_that_is_away_is_a_pause(tmp_path, parquet, bucket, storages):
    url = bucket(parquet)
    with running_server({"chat": parquet}) as server:
        expected = consume(server.endpoint, a_run())
    with running_server({"chat": url}, disk_cache_bytes=0, disk_cache_dir=tmp_path / "blocks") as server:
        storages.refused = parquet.name
        back = threading.Timer(1.0, lambda: setattr(storages, "refused", ""))
        back.start()
        assert consume(server.endpoint, a_run()) == expected
        back.join()


def test_an_object_that_changed_ends_the_stream_as_damage(tmp_path, parquet, bucket):
    with running_server({"chat": bucket(parquet)}, disk_cache_dir=tmp_path / "blocks") as server:
        bucket(parquet)
        with pytest.raises(StoreDamagedError, match=r"row group 0.*changed since it was admitted"):
            consume(server.endpoint, a_run())


def test_blocks_of_planned_steps_are_there_before_their_step_begins(tmp_path, parquet, bucket, storages):
    spec = a_run(shuffle=Shuffle.SEQUENTIAL, step_tokens=150, micro_batch_tokens=150)
    with running_server({"chat": bucket(parquet)}, disk_cache_dir=tmp_path / "blocks") as server:
        storages.reads.clear()
        with DataClient(server.endpoint, patience_s=PATIENCE_S) as client:
            client.create_run("r", spec)
            attempt = client.begin_attempt("r", resume=False, world_size=1, dp_world_size=1, holder="h")
            with client.stream("r", attempt, world_rank=0, dp_rank=0, next_step=1, credits=1) as stream:
                next(iter(stream))
                deadline = time.monotonic() + PATIENCE_S
                while len(storages.reads) < SHARDS - 2:
                    assert time.monotonic() < deadline, f"{len(storages.reads)} blocks were loaded"
                    time.sleep(0.01)


def test_blocks_of_steps_that_are_not_due_yet_are_loaded_a_few_at_a_time(tmp_path, bucket, storages):
    store = write_store(tmp_path / "even", lengths=[10] * 400, format="parquet", shards=40)
    spec = a_run(shuffle=Shuffle.SEQUENTIAL, step_tokens=100, micro_batch_tokens=100, max_epochs=1)
    with running_server({"chat": bucket(store)}, disk_cache_bytes=0) as server:
        storages.stalled = "even"
        storages.reads.clear()
        with ThreadPoolExecutor(1) as pool:
            served = pool.submit(consume, server.endpoint, spec)
            for _ in range(STEPS_DUE + LOADS_FAR_AHEAD):
                assert storages.waiting.acquire(timeout=PATIENCE_S)
            waiting_at_once = len(storages.reads)
            storages.released.set()
            served.result()
    assert waiting_at_once == STEPS_DUE + LOADS_FAR_AHEAD
    assert len(storages.reads) == 40
