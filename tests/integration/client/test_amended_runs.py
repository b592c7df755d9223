"""A run that gets another order while it streams: every server of the ledger changes over at the same step."""

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dataserver.client import DataClient
from dataserver.errors import InvalidSpecError, PreconditionError, RunConflictError, StoreNotFoundError
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import running_server, write_store

CHAT, MATHS = 1, 2
ROWS = 60
FIRST_STEP = 5


def write_marked(path: Path, mark: int, rows: int = ROWS) -> Path:
    """Rows that say which store and row they are: `mark`, row number, and some tokens."""
    random = np.random.default_rng(mark)
    values = []
    for row in range(rows):
        rest = random.integers(3, 90, random.integers(1, 12)).tolist()
        values.append(([mark, 100 + row, *rest], [0, 1, *(1 for _ in rest)]))
    return write_store(path, rows=values)


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, Path]:
    return {"chat": write_marked(tmp_path / "chat", CHAT), "maths": write_marked(tmp_path / "maths", MATHS)}


def order_of(*stores: str, **fields: object) -> OrderSpec:
    return OrderSpec(sources=tuple(Source(store=store) for store in stores), max_length=16, **fields)


def spec_of(**batch: object) -> RunSpec:
    return RunSpec(
        order=order_of("chat"),
        batch=BatchSpec(**{"step_samples": 6, "micro_batch_tokens": 32, "max_steps": 12} | batch),
    )


def rows_in(micro_batch) -> list[tuple[int, int]]:
    begins = micro_batch.cu_seqlens[:-1][: len(micro_batch.lengths)]
    return [(int(micro_batch.tokens[begin]), int(micro_batch.tokens[begin + 1]) - 100) for begin in begins]


class Rank:
    """A rank's loop: the rows of each step, and what happens before a step is acknowledged."""

    def __init__(self, client: DataClient, attempt, rank: int, *, before_ack=lambda step: None, stop: int = 0):
        self.client, self.attempt, self.rank = client, attempt, rank
        self.before_ack, self.stop = before_ack, stop
        self.rows: dict[int, list[tuple[int, int]]] = {}
        self.ends = {}

    def train(self) -> "Rank":
        where = {"world_rank": self.rank, "dp_rank": self.rank, "next_step": self.attempt.base.step + 1}
        with self.client.stream("r", self.attempt, **where, credits=2) as stream:
            for step in stream:
                self.rows[step.number] = [row for micro_batch in step for row in rows_in(micro_batch)]
                self.ends[step.number] = step.end
                self.before_ack(step.number)
                stream.ack(step)
                if step.number == self.stop:
                    break
        return self


def train_together(*ranks: Rank) -> dict[int, list[tuple[int, int]]]:
    """The rows of each step, over all ranks."""
    with ThreadPoolExecutor(len(ranks)) as threads:
        done = list(threads.map(Rank.train, ranks))
    assert len({tuple(rank.rows) for rank in done}) == 1
    return {step: [row for rank in done for row in rank.rows[step]] for step in done[0].rows}


def begin(client: DataClient, ranks: int, **arguments: object):
    fields = {"resume": False, "world_size": ranks, "dp_world_size": ranks, "holder": "h"}
    return client.begin_attempt("r", **fields | arguments)


def expect_stages(steps: dict[int, list[tuple[int, int]]], first_step: int = FIRST_STEP) -> None:
    """Each stage has rows of its store only, none of them twice in an epoch, and no step is short."""
    for stage in (CHAT, MATHS):
        rows = [row for step, its in steps.items() if (step >= first_step) == (stage == MATHS) for row in its]
        assert {mark for mark, _ in rows} == {stage}
        assert max(Counter(rows).values()) == 1
    assert {len(rows) for rows in steps.values()} == {6}


def test_two_servers_change_over_at_the_same_step_while_a_run_streams(tmp_path: Path, stores) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    with (
        running_server(stores, ledger_url=ledger) as one,
        running_server(stores, ledger_url=ledger) as two,
        DataClient(one.endpoint) as first,
        DataClient(two.endpoint) as second,
    ):
        first.create_run("r", spec_of())
        attempt = begin(first, 2)

        def amend(step: int) -> None:
            if step == 2:
                run = second.amend_run("r", FIRST_STEP, order_of("maths"))
                assert [stage.first_step for stage in run.stages] == [1, FIRST_STEP]

        ranks = Rank(first, attempt, 0, before_ack=amend), Rank(second, attempt, 1)
        steps = train_together(*ranks)
        assert sorted(steps) == list(range(1, 13))
        expect_stages(steps)
        assert [ranks[0].ends[step].stage for step in (4, 5, 12)] == [0, 1, 1]
        assert ranks[0].ends == ranks[1].ends
        for step, rows in steps.items():
            described = second.describe_step("r", step)
            assert described.end.stage == int(step >= FIRST_STEP)
            planned = [sample for micro_batch in described.micro_batches for sample in micro_batch.samples]
            names = {"chat": CHAT, "maths": MATHS}
            assert Counter((names[sample.store], sample.row) for sample in planned) == Counter(rows)
        run = first.get_run("r")
        assert run.totals is not None
        assert {store.store for store in run.totals.stores} == {"chat", "maths"}
        assert run == next(second.watch_run("r"))


def test_a_server_killed_between_the_amendment_and_its_first_step_costs_no_sample(serve_marked, connect) -> None:
    one, two = serve_marked(), serve_marked()
    client = connect(f"{one.endpoint},{two.endpoint}")
    client.create_run("r", spec_of())
    attempt = begin(client, 2)

    def amend_and_kill(step: int) -> None:
        if step == FIRST_STEP - 2:
            client.amend_run("r", FIRST_STEP, order_of("maths"))
            one.kill()
            one.start()

    expect_stages(train_together(Rank(client, attempt, 0, before_ack=amend_and_kill), Rank(client, attempt, 1)))


@pytest.fixture
def serve_marked(serve, stores):
    """Start a server process that also serves `maths`."""
    return lambda: serve("--store", f"maths={stores['maths']}")


@pytest.fixture
def store(stores) -> Path:
    """What the server processes of this folder serve as `chat`."""
    return stores["chat"]


@pytest.fixture
def client(stores):
    with running_server(stores) as server, DataClient(server.endpoint, patience_s=60) as connected:
        yield connected


def test_a_checkpoint_from_before_the_amendment_goes_on_into_the_new_stage_at_another_size(client: DataClient) -> None:
    client.create_run("r", spec_of())
    before = Rank(client, begin(client, 1), 0, stop=3)
    steps = train_together(before)
    client.commit_cursor("r", before.attempt, before.ends[2], "file:///2")
    client.amend_run("r", FIRST_STEP, order_of("maths"))
    client.create_run("r", spec_of())
    attempt = begin(client, 2, resume=True, cursor=before.ends[2], take_over=True)
    later = train_together(Rank(client, attempt, 0), Rank(client, attempt, 1))
    assert min(later) == 3
    expect_stages({step: rows for step, rows in steps.items() if step <= 2} | later)


def test_a_run_that_is_rewound_behind_a_stage_goes_through_it_again(client: DataClient) -> None:
    client.create_run("r", spec_of())
    client.amend_run("r", FIRST_STEP, order_of("maths"))
    first = Rank(client, begin(client, 1), 0, stop=7)
    steps = train_together(first)
    client.rewind_run("r", 3)
    assert [stage.first_step for stage in client.get_run("r").stages] == [1, FIRST_STEP]
    again = train_together(Rank(client, begin(client, 1, resume=True, version=3), 0))
    assert {step: rows for step, rows in again.items() if step <= 7} == {
        step: rows for step, rows in steps.items() if step > 3
    }
    expect_stages({step: rows for step, rows in steps.items() if step <= 3} | again)


def test_a_window_of_steps_ends_where_the_stage_begins(client: DataClient) -> None:
    client.create_run("r", spec_of(step_samples=None, step_tokens=48, lookahead_steps=4))
    first = Rank(client, begin(client, 1), 0, stop=5)
    train_together(first)
    with pytest.raises(PreconditionError, match=r"inside a window .* up to step 8: give first step 9"):
        client.amend_run("r", 7, order_of("maths"))
    client.amend_run("r", 11, order_of("maths"))
    attempt = begin(client, 1, resume=True, cursor=first.ends[5], take_over=True)
    last = Rank(client, attempt, 0)
    steps = {step: rows for step, rows in first.rows.items() if step <= 5} | train_together(last)
    marks = {step: {mark for mark, _ in rows} for step, rows in steps.items()}
    assert marks == {step: {MATHS if step >= 11 else CHAT} for step in range(1, 13)}
    rows = list(itertools.chain.from_iterable(steps.values()))
    assert max(Counter(rows).values()) == 1
    assert last.ends[10].window is None


def test_an_amendment_is_checked_as_a_run_is(client: DataClient, tmp_path: Path) -> None:
    client.create_run("r", spec_of().model_copy(update={"vocab_size": 200}))
    with pytest.raises(StoreNotFoundError, match="'none'"):
        client.amend_run("r", 2, order_of("none"))
    with pytest.raises(InvalidSpecError, match="micro_batch_tokens = 32 is below the 40 tokens"):
        client.amend_run("r", 2, order_of("maths").model_copy(update={"max_length": 40}))
    client.amend_run("r", 2, order_of("maths"))
    client.amend_run("r", 2, order_of("maths"))
    with pytest.raises(RunConflictError, match=r"seed \(there: 0, asked: 4\)"):
        client.amend_run("r", 2, order_of("maths", seed=4))
    with pytest.raises(RunConflictError, match=r"run amend r"):
        client.create_run("r", spec_of().model_copy(update={"order": order_of("maths")}))
