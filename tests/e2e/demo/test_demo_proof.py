"""The demo's proof of exactly-once can fail: each way of losing or repeating a sample is seen.

A run of two attempts on a real server, with ranks that train nothing but keep the demo's records.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dataserver.client import DataClient
from dataserver.run_spec import BatchSpec, OrderSpec, Source
from dataserver.testing import running_server
from trainer.config import DataConfig, RunConfig
from trainer.data import Endpoint

RUN = RunConfig(
    name="manual-backwards",
    order=OrderSpec(sources=(Source(store="manual"),), max_length=16),
    batch=BatchSpec(step_samples=6, micro_batch_tokens=32, max_epochs=1),
)
LENGTHS = [5 + 3 * (row % 7) for row in range(40)]

BASE = 3
"""The second attempt begins after this step; the first went two steps further."""


def write_arrow_file(store: Path, lengths: list[int]) -> None:
    from corpus import SCHEMA

    store.mkdir()
    rows = [{"input_ids": list(range(row, row + n)), "loss_mask": [0] + [1] * (n - 1)} for row, n in enumerate(lengths)]
    with pa.ipc.new_file(str(store / "part-0.arrow"), SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, SCHEMA))


def train(endpoint: str, records: Path, *, attempt_ends: int | None) -> None:
    """One attempt of a rank: from the committed cursor to `attempt_ends` or to the end of the run."""
    from recording import RecordingFeed

    feed = RecordingFeed(Endpoint(addresses=endpoint, config=DataConfig()), RUN, records)
    feed.create_run(vocab_size=1000)
    with DataClient(endpoint) as client:
        begin = client.get_run(RUN.name).committed
    resume = begin if begin.step else None
    attempt = feed.begin(resume=resume, world_size=1, dp_world_size=1, holder=str(begin.step), take_over=False)
    stream = feed.open(attempt=attempt, world_rank=0, dp_rank=0, next_step=begin.step + 1)
    for step in stream:
        for _ in step:
            pass
        stream.ack(step)
        if step.number == BASE or step.last:
            feed.commit(attempt=attempt, cursor=step.end, uri="file:///checkpoint")
        if step.number == attempt_ends:
            break
    stream.close()
    feed.close()


class Trained:
    """A run that is over, and what its ranks recorded."""

    def __init__(self, client: DataClient, store: Path, records: Path) -> None:
        self.client = client
        self.store = store
        self.records = records

    def prove(self) -> object:
        from proof import Lives, prove

        lives = Lives(base=BASE, last=self.client.get_run(RUN.name).committed.step)
        return prove(self.client, RUN.name, lives, store=self.store, records=self.records, max_length=16)

    def edit(self, attempt: int, step: int, samples: list[str]) -> list[str]:
        """Replace what was recorded of a step; returns what stood there."""
        path = self.records / f"attempt-{attempt}-rank-0.jsonl"
        lines = {line["step"]: line["samples"] for line in map(json.loads, path.read_text().splitlines())}
        before, lines[step] = lines[step], samples
        path.write_text("".join(json.dumps({"step": number, "samples": s}) + "\n" for number, s in lines.items()))
        return before


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[Trained]:
    store, records = tmp_path / "manual", tmp_path / "records"
    records.mkdir()
    write_arrow_file(store, LENGTHS)
    with running_server({"manual": store}) as server, DataClient(server.endpoint) as client:
        train(server.endpoint, records, attempt_ends=BASE + 2)
        train(server.endpoint, records, attempt_ends=None)
        yield Trained(client, store, records)


def test_a_run_that_lost_and_repeated_nothing_is_proven(trained: Trained) -> None:
    from proof import Proof

    assert trained.prove() == Proof(samples=40, dropped=0, lost_with_attempt=12)


@pytest.mark.parametrize(("attempt", "step"), [(1, BASE), (2, BASE + 1)])
def test_a_sample_that_no_rank_trained_on_is_seen(trained: Trained, attempt: int, step: int) -> None:
    from processes import DemoError

    samples = trained.edit(attempt, step, [])
    trained.edit(attempt, step, samples[1:])
    with pytest.raises(DemoError, match=f"step {step}: the ranks trained on other samples"):
        trained.prove()


def test_a_sample_that_was_trained_on_twice_is_seen(trained: Trained) -> None:
    from processes import DemoError

    samples = trained.edit(2, 5, [])
    trained.edit(2, 5, [*samples, samples[0]])
    with pytest.raises(DemoError, match="step 5: the ranks trained on other samples"):
        trained.prove()


def test_what_was_thrown_away_with_the_first_attempt_is_not_counted(trained: Trained) -> None:
    trained.edit(1, BASE + 1, [])
    trained.prove()


def test_a_store_with_another_row_than_was_served_is_seen(trained: Trained, tmp_path: Path) -> None:
    from processes import DemoError

    write_arrow_file(tmp_path / "other", [*LENGTHS, 9])
    trained.store = tmp_path / "other"
    with pytest.raises(DemoError, match="1 samples missing, 0 too many"):
        trained.prove()


def test_the_corpus_is_the_same_text_each_time_and_its_mask_covers_the_answer_only(tmp_path: Path) -> None:
    import corpus

    texts = corpus.paragraphs()[:50]
    tokenizer = corpus.train_tokenizer(texts)
    row = corpus.row(tokenizer, texts[0])
    answer = [token for token, is_target in zip(row["input_ids"], row["loss_mask"], strict=True) if is_target]
    assert tokenizer.decode(answer, skip_special_tokens=True).rstrip("\n") == texts[0][::-1]
    assert corpus.paragraphs()[:50] == texts
