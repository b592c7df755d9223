"""Orders through a server: what a client is sent is what the order says, over a change of ranks in the middle."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataserver.client import DataClient
from dataserver.errors import InvalidSpecError
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import running_server

ROWS = {"chat": 60, "code": 90}
FIRST_TOKEN = {"chat": 0, "code": 10_000}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Stores in row groups of 7 rows; each row is its own number four times, so that it is known by any token."""
    folder = tmp_path_factory.mktemp("stores")
    for name, rows in ROWS.items():
        tokens = [[FIRST_TOKEN[name] + row] * 4 for row in range(rows)]
        table = pa.table({"input_ids": tokens, "loss_mask": [[1] * 4] * rows})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=7)
    stores = {name: folder / f"{name}.parquet" for name in ROWS}
    with running_server(stores) as running:
        yield running


def spec(weights, batch, **fields):
    sources = tuple(Source(store=name, weight=weight) for name, weight in zip(ROWS, weights, strict=True))
    return RunSpec(order=OrderSpec(sources=sources, max_length=8, seed=3, **fields), batch=batch)


def train(client, run, *, ranks, base=None, steps=None):
    """How often each token was trained on, four to a row, and the cursor after the last step."""
    attempt = client.begin_attempt(
        run, resume=base is not None, cursor=base, world_size=ranks, dp_world_size=ranks, holder=f"{ranks} ranks"
    )
    first = attempt.base.step + 1

    def rank(number):
        tokens, cursor = Counter(), base
        with client.stream(run, attempt, world_rank=number, dp_rank=number, next_step=first, credits=8) as stream:
            for step in stream:
                for micro_batch in step:
                    tokens.update(micro_batch.tokens[::4].tolist())
                cursor = step.end
                stream.ack(step)
                if steps is not None and step.number == steps:
                    break
        return tokens, cursor

    with ThreadPoolExecutor(ranks) as threads:
        trained = list(threads.map(rank, range(ranks)))
    return sum((tokens for tokens, _ in trained), Counter()), trained[0][1]


@pytest.mark.parametrize(
    ("weights", "fields", "epoch"),
    [
        ((None, None), {"shuffle": "block", "block_window": 4}, {"chat": 60, "code": 90}),
        ((1, 1), {"stopping": "all_exhausted", "shuffle": "block"}, {"chat": 90, "code": 90}),
        ((1, 3), {"weight_unit": "tokens", "stopping": "first_exhausted"}, {"chat": 30, "code": 90}),
    ],
)
def test_an_epoch_is_what_was_said_over_a_change_of_ranks(server, weights, fields, epoch):
    run = "-".join(["run", *map(str, weights), *fields]).replace("_", "-")
    batch = BatchSpec(step_samples=16, micro_batch_tokens=32, max_epochs=1)
    with DataClient(server.endpoint) as client:
        created = client.create_run(run, spec(weights, batch, **fields))
        before, cursor = train(client, run, ranks=1, steps=4)
        after, _ = train(client, run, ranks=2, base=cursor)
    assert abs(created.epoch_samples - sum(epoch.values())) <= 1
    tokens = before + after
    for name, count in epoch.items():
        mine = [times for token, times in tokens.items() if token // 10_000 == FIRST_TOKEN[name] // 10_000]
        assert abs(sum(mine) - count) <= 1
        assert max(mine) <= -(-count // ROWS[name])
    assert sum(tokens.values()) == created.epoch_samples


def test_an_amended_mixture_goes_on_with_the_rows_that_no_stage_has_given(server):
    batch = BatchSpec(step_samples=10, micro_batch_tokens=40, max_steps=10)
    with DataClient(server.endpoint) as client:
        client.create_run("amended", spec((1, 1), batch))
        client.amend_run("amended", 6, spec((1, 4), batch).order)
        before, cursor = train(client, "amended", ranks=1, steps=3)
        after, end = train(client, "amended", ranks=2, base=cursor)
    assert (cursor.stage, cursor.source_positions) == (0, ())
    assert (end.stage, end.source_positions) == (1, (25 + 10, 25 + 40))
    tokens = before + after
    assert set(tokens.values()) == {1}
    assert len(tokens) == 100


def test_what_cannot_be_done_is_refused_before_the_first_step(server):
    batch = BatchSpec(step_samples=16, micro_batch_tokens=32)
    with DataClient(server.endpoint) as client:
        with pytest.raises(InvalidSpecError, match="sampler 'mine' is installed 0 times"):
            client.create_run("refused", spec((None, None), batch, shuffle="custom", sampler="mine"))
        with pytest.raises(InvalidSpecError, match="source 'code' is 1e-09 of all"):
            client.create_run("refused", spec((1, 1e-9), batch))
        assert "refused" not in [run.name for run in client.list_runs()]
