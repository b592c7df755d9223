"""Runs over lazily admitted stores: each row that is served comes once an epoch, at any number of ranks."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataserver.cli.main import main
from dataserver.client import DataClient
from dataserver.errors import InvalidSpecError, StoreDamagedError
from dataserver.eval_spec import EvalSpec
from dataserver.run_spec import BatchSpec, LongRows, OrderSpec, RunSpec, Shuffle, Source
from dataserver.storage.memory import MemoryStorage
from dataserver.testing import running_server

ROWS, SHARDS, PER_BLOCK = 240, 4, 10
PATIENCE_S = 60.0
SHUFFLES = (Shuffle.BLOCK, Shuffle.SEQUENTIAL, Shuffle.FULL)
BATCH = BatchSpec(step_samples=23, micro_batch_tokens=64, max_epochs=2)


def write(directory, rows, masks, form="parquet"):
    """Row groups, or record batches, of ten rows."""
    directory.mkdir()
    whole = pa.table({"input_ids": pa.array(rows, pa.list_(pa.int32())), "loss_mask": masks})
    for shard in range(SHARDS):
        part = whole.slice(shard * ROWS // SHARDS, ROWS // SHARDS)
        if form == "parquet":
            pq.write_table(part, directory / f"{shard}.parquet", row_group_size=PER_BLOCK)
        else:
            with pa.ipc.new_file(directory / f"{shard}.arrow", part.schema) as file:
                file.write_table(part, max_chunksize=PER_BLOCK)
    return directory


@pytest.fixture
def kept(tmp_path):
    """A store of which every row is served; each begins with a token of its own."""
    rows = [[1000 + row] + [row] * (2 + row % 17) for row in range(ROWS)]
    return write(tmp_path / "kept", rows, [[1] * len(row) for row in rows])


@pytest.fixture
def gaps(tmp_path):
    """One of which two of three rows are not served: they are empty, or without a target in the first 16 tokens."""
    rows = [[] if row % 6 == 2 else [1000 + row] + [row] * (2 + row % 29) for row in range(ROWS)]
    masks = [[int(row % 3 == 0 or at > 18) for at in range(len(tokens))] for row, tokens in enumerate(rows)]
    return write(tmp_path / "gaps", rows, masks, "arrow")


@pytest.fixture
def bucket(tmp_path):
    """A directory's files behind `memory://`, which this process's servers see too."""
    memory = fsspec.filesystem("memory")
    root = f"/{tmp_path.name}-lazily"

    def put(directory):
        for path in directory.iterdir():
            memory.pipe_file(f"{root}/{path.name}", path.read_bytes())
        return f"memory:/{root}"

    yield put
    if memory.exists(root):
        memory.rm(root, recursive=True)


def lazily(path, **storage):
    return {"path": path, "admission": "lazy"} | ({"storage": storage} if storage else {})


def a_run(shuffle=Shuffle.BLOCK, batch=BATCH, **fields):
    order = {"sources": (Source(store="chat"),), "max_length": 16, "seed": 3, "shuffle": shuffle, "block_window": 4}
    if shuffle is not Shuffle.BLOCK:
        del order["block_window"]
    return RunSpec(
        order=OrderSpec(**order | {key: fields.pop(key) for key in list(fields) if key in OrderSpec.model_fields}),
        batch=batch,
        **fields,
    )


def train(endpoints, run="r", *, ranks=1, base=None, steps=None):
    """Of each step the samples that every rank got, and the cursors; ranks stream from the endpoints in turn."""
    with DataClient(endpoints[0], patience_s=PATIENCE_S) as client:
        attempt = client.begin_attempt(
            run,
            resume=base is not None,
            cursor=base,
            world_size=ranks,
            dp_world_size=ranks,
            holder=f"{ranks} ranks",
            take_over=True,
        )

    def rank(number):
        found = []
        with DataClient(endpoints[number % len(endpoints)], patience_s=PATIENCE_S) as client:
            first = attempt.base.step + 1
            with client.stream(run, attempt, world_rank=number, dp_rank=number, next_step=first, credits=8) as stream:
                for step in stream:
                    samples = [sample for micro_batch in step for sample in samples_of(micro_batch)]
                    found.append((samples, step.end))
                    stream.ack(step)
                    if step.number == steps:
                        break
        return found

    with ThreadPoolExecutor(ranks) as threads:
        return list(threads.map(rank, range(ranks)))


def samples_of(micro_batch):
    begins = micro_batch.cu_seqlens[:-1]
    return [
        (
            tuple(micro_batch.tokens[begin : begin + length].tolist()),
            tuple(micro_batch.loss_mask[begin : begin + length].tolist()),
        )
        for begin, length in zip(begins, micro_batch.lengths.tolist(), strict=False)
    ]


def all_samples(trained):
    return Counter(sample for rank in trained for samples, _ in rank for sample in samples)


def create(server, spec, name="r"):
    with DataClient(server.endpoint, patience_s=PATIENCE_S) as client:
        return client.create_run(name, spec)


@pytest.mark.parametrize("shuffle", SHUFFLES, ids=str)
def test_where_every_row_is_served_lazy_and_eager_runs_are_the_same_step_by_step(kept, shuffle):
    found = []
    for chat in (kept, lazily(kept)):
        with running_server({"chat": chat}) as server:
            create(server, a_run(shuffle))
            found.append([[samples for samples, _ in rank] for rank in train([server.endpoint], ranks=2)])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("shuffle", "cut", "long_rows"),
    [
        (Shuffle.BLOCK, {"step_samples": 7}, LongRows.TRUNCATE),
        (Shuffle.FULL, {"step_tokens": 96, "lookahead_steps": 3}, LongRows.TRUNCATE),
        (Shuffle.SEQUENTIAL, {"step_tokens": 96, "lookahead_steps": 3}, LongRows.DROP),
    ],
    ids=str,
)
def test_rows_that_are_dropped_change_nothing_of_the_others_over_a_change_of_ranks(gaps, shuffle, cut, long_rows):
    batch = BatchSpec(**cut, micro_batch_tokens=64, max_epochs=2)
    spec = a_run(shuffle, batch, long_rows=long_rows)
    with running_server({"chat": gaps}) as server:
        create(server, spec)
        expected = all_samples(train([server.endpoint], ranks=2))
    with running_server({"chat": lazily(gaps)}) as server:
        assert create(server, spec).epoch_samples == ROWS
        first = train([server.endpoint], ranks=1, steps=4)
        rest = train([server.endpoint], ranks=3, base=first[0][-1][1])
    assert all_samples(first) + all_samples(rest) == expected
    assert set(expected.values()) == {2}


def test_replicas_over_one_storage_serve_the_same_steps_and_share_what_they_found_out(
    tmp_path, gaps, bucket, monkeypatch
):
    reads = Counter()
    read = MemoryStorage.read

    def counting(self, info, begin, end):
        reads[info.path, begin, end] += 1
        return read(self, info, begin, end)

    monkeypatch.setattr(MemoryStorage, "read", counting)
    url, ledger = bucket(gaps), f"sqlite:///{tmp_path}/ledger.db"
    shared = {"index_dir": tmp_path / "index", "disk_cache_dir": tmp_path / "blocks", "ledger_url": ledger}
    apart = {"index_dir": tmp_path / "other", "disk_cache_bytes": 0, "ledger_url": ledger}
    with running_server({"chat": gaps}) as server:
        create(server, a_run())
        expected = all_samples(train([server.endpoint]))
    with (
        running_server({"chat": lazily(url)}, **shared) as first,
        running_server({"chat": lazily(url)}, **shared) as second,
        running_server({"chat": lazily(url)}, **apart) as third,
    ):
        reads.clear()
        create(first, a_run())
        trained = train([server.endpoint for server in (first, second, third)], ranks=3)
        assert all_samples(trained) == expected
        # The three agreed on every plan: their seals would have been refused otherwise. Each disk saw each block once.
        assert max(reads.values()) <= 4
    reads.clear()
    with running_server({"chat": lazily(url)}, **shared) as again:
        create(again, a_run(), "again")
        assert all_samples(train([again.endpoint], "again")) == expected
    assert sum(reads.values()) == 0


def test_a_lazy_store_in_s3_is_served_as_a_local_one(tmp_path, kept, s3):
    for path in kept.iterdir():
        s3.put("lazily", f"chat/{path.name}", path.read_bytes())
    found = []
    for chat in (kept, lazily("s3://lazily/chat", **s3.options)):
        with running_server({"chat": chat}, disk_cache_dir=tmp_path / "blocks") as server:
            create(server, a_run())
            found.append([[samples for samples, _ in rank] for rank in train([server.endpoint], ranks=2)])
    assert found[0] == found[1]


def test_a_fault_ends_the_run_at_the_step_that_needs_its_block_as_data_loss(tmp_path):
    masks = [[1] * 4] * ROWS
    masks[125] = [1, 1, 7, 1]
    directory = write(tmp_path / "broken", [[row] * 4 for row in range(ROWS)], masks)
    spec = a_run(Shuffle.SEQUENTIAL, BatchSpec(step_samples=10, micro_batch_tokens=64, max_epochs=1))
    text = (
        r"Row 125: loss_mask must contain only 0s and 1s. "
        r"\(shard '2.parquet', row group 0, row 5 of the shard, column 'loss_mask'\)"
    )
    for _ in range(2):
        with running_server({"chat": lazily(directory)}, ledger_url=f"sqlite:///{tmp_path}/ledger.db") as server:
            create(server, spec)
            with pytest.raises(StoreDamagedError, match=text) as damaged:
                train([server.endpoint])
            assert damaged.value.details["row"] == "125"
            with DataClient(server.endpoint, patience_s=PATIENCE_S) as client:
                # What lies before the fault was served.
                assert 8 <= client.get_run("r").sealed_step <= 12


def test_a_token_beyond_the_vocabulary_is_told_when_its_block_is_needed(kept):
    spec = a_run(Shuffle.SEQUENTIAL, BatchSpec(step_samples=10, micro_batch_tokens=64, max_epochs=1), vocab_size=1125)
    with running_server({"chat": lazily(kept)}) as server:
        create(server, spec)
        with pytest.raises(StoreDamagedError, match=r"store 'chat' row 129 holds token 1129, but vocab_size = 1125"):
            train([server.endpoint])
        with DataClient(server.endpoint, patience_s=PATIENCE_S) as client:
            assert client.get_run("r").sealed_step == 12


def test_what_cannot_be_done_lazily_is_refused_with_the_way_out(kept, bucket):
    with running_server({"chat": lazily(bucket(kept)), "near": lazily(kept)}, disk_cache_bytes=0) as server:
        for spec, text in (
            (a_run(Shuffle.FULL), "shuffle = block"),
            (a_run(sources=(Source(store="chat", weight=1.0),), weight_unit="tokens"), "weight_unit = samples"),
            (a_run(sources=(Source(store="near"),), long_rows=LongRows.SPLIT), "truncate, drop or refuse"),
        ):
            with pytest.raises(InvalidSpecError, match=text):
                create(server, spec)


def test_a_held_out_store_may_be_lazy(gaps):
    spec = EvalSpec(store="chat", max_length=16, micro_batch_tokens=64)
    found = []
    for chat in (gaps, lazily(gaps)):
        with (
            running_server({"chat": chat}) as server,
            DataClient(server.endpoint, patience_s=PATIENCE_S) as client,
            client.eval_stream(spec, dp_rank=0, dp_world_size=1, credits=2) as stream,
        ):
            found.append([sample for micro_batch in stream for sample in samples_of(micro_batch)])
    assert found[0] == found[1] != []


def test_a_run_goes_on_where_a_server_ended_and_describes_its_steps(tmp_path, gaps):
    settings = {"index_dir": tmp_path / "index", "ledger_url": f"sqlite:///{tmp_path}/ledger.db"}
    with running_server({"chat": lazily(gaps)}, **settings) as server:
        create(server, a_run())
        first = train([server.endpoint], steps=2)
    with running_server({"chat": lazily(gaps)}, **settings) as server:
        with DataClient(server.endpoint, patience_s=PATIENCE_S) as client:
            described = client.describe_step("r", 2)
            ahead = client.describe_step("r", 6)
        rest = train([server.endpoint], base=first[0][-1][1])
    rows = lambda description: Counter(  # noqa: E731
        sample.row for micro_batch in description.micro_batches for sample in micro_batch.samples
    )
    assert rows(described) == Counter(sample[0][0] - 1000 for sample in first[0][1][0])
    assert rows(ahead) == Counter(sample[0][0] - 1000 for sample in rest[0][3][0])
    assert set((all_samples(first) + all_samples(rest)).values()) == {2}


def test_a_report_says_what_is_not_known_yet(kept, capsys):
    with running_server({"chat": lazily(kept)}) as server:
        assert main(["store", "report", "chat", "--endpoint", server.endpoint]) == 0
    text = capsys.readouterr().out
    assert "lazy: 0 rows checked so far (0.0%)" in text
    assert "not known yet" in text
    assert "tokens per row" not in text


def test_what_is_known_of_a_store_is_told_and_nothing_else(kept):
    with running_server({"chat": lazily(kept)}) as server, DataClient(server.endpoint, patience_s=PATIENCE_S) as client:
        before = client.get_store("chat")
        assert (before.admission, before.rows, before.checked_rows, before.tokens) == ("lazy", ROWS, 0, 0)
        samples = client.list_samples("chat", 20, 23)
        assert [sample.input_ids[0] for sample in samples] == [1020, 1021, 1022]
        assert client.get_store("chat").checked_rows == PER_BLOCK
