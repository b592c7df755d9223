"""Long documents in JSON Lines, split into pieces: every token reaches a trainer once, and a plan names its pieces."""

import gzip
import itertools
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from dataserver.client import DataClient
from dataserver.errors import InvalidSpecError
from dataserver.run_spec import BatchSpec, LongRows, OrderSpec, RunSpec, Source
from dataserver.testing import running_server

LENGTHS = [40, 3, 17, 0, 9, 26, 1, 33]
MAX_LENGTH = 8


@pytest.fixture
def client(tmp_path):
    """A server of one file, with every token a target and once more with its masks."""
    lines, first = [], 0
    for length in LENGTHS:
        lines.append({"input_ids": list(range(first, first + length)), "loss_mask": [1] * length})
        first += length
    path = tmp_path / "documents.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    stores = {"documents": {"path": path, "loss_mask": "all"}, "masked": {"path": path}}
    with running_server(stores) as server, DataClient(server.endpoint, patience_s=60) as connected:
        yield connected


def spec(store):
    order = OrderSpec(sources=(Source(store=store),), max_length=MAX_LENGTH, long_rows=LongRows.SPLIT, seed=3)
    return RunSpec(order=order, batch=BatchSpec(step_tokens=32, micro_batch_tokens=16, max_epochs=1))


@pytest.mark.parametrize("ranks", [1, 3])
def test_every_token_is_trained_on_once_but_for_last_pieces_of_one(client, ranks):
    created = client.create_run("run", spec("documents"))
    attempt = client.begin_attempt("run", resume=False, world_size=ranks, dp_world_size=ranks, holder="test")

    def rank(number):
        tokens = Counter()
        with client.stream("run", attempt, world_rank=number, dp_rank=number, next_step=1, credits=4) as stream:
            for step in stream:
                for micro_batch in step:
                    tokens.update(micro_batch.tokens.tolist())
                stream.ack(step)
        return tokens

    with ThreadPoolExecutor(ranks) as threads:
        tokens = sum(threads.map(rank, range(ranks)), Counter())
    ends = [sum(LENGTHS[: row + 1]) for row in range(len(LENGTHS))]
    alone = {end - 1 for end, length in zip(ends, LENGTHS, strict=True) if length % MAX_LENGTH == 1}
    assert len(alone) == 4, "of 17, 9, 1 and 33 tokens"
    assert tokens == Counter(set(range(sum(LENGTHS))) - alone)
    assert created.epoch_samples == sum(-(-length // MAX_LENGTH) for length in LENGTHS) - len(alone)


def test_a_plan_names_its_pieces_by_row_and_offset(client):
    client.create_run("run", spec("documents"))
    found = []
    for step in itertools.count(1):
        described = client.describe_step("run", step, dp_world_size=1)
        samples = [sample for planned in described.micro_batches for sample in planned.samples]
        found += [(sample.row, sample.offset, sample.length) for sample in samples]
        if described.last:
            break
    expected = [
        (row, offset, min(MAX_LENGTH, length - offset))
        for row, length in enumerate(LENGTHS)
        for offset in range(0, length, MAX_LENGTH)
        if length - offset > 1
    ]
    assert sorted(found) == expected


def test_rows_with_masks_are_not_split(client):
    with pytest.raises(InvalidSpecError, match="only with loss_mask = all"):
        client.create_run("run", spec("masked"))
