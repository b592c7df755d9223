"""The client against real servers that are killed, restarted, and one of several."""

import itertools
import logging
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

from dataserver.client import DataClient
from dataserver.errors import (
    AttemptAliveError,
    ForeignCursorError,
    RunConflictError,
    RunNotFoundError,
    StaleAttemptError,
    UnauthenticatedError,
    UnavailableError,
)
from dataserver.testing import attempt_info, running_server


@pytest.fixture
def samples(store) -> Counter[bytes]:
    """The token bytes of each sample of the store, to be consumed once an epoch."""
    rows = pa.ipc.open_stream(store / "data-00000-of-00001.arrow").read_all()["input_ids"].to_pylist()
    return Counter(np.array(tokens, dtype=np.uint16).tobytes() for tokens in rows)


def samples_of(micro_batch) -> list[bytes]:
    bounds = micro_batch.cu_seqlens
    return [micro_batch.tokens[begin:end].tobytes() for begin, end in itertools.pairwise(bounds)]


def begin(client: DataClient, spec, *, ranks: int = 1, **arguments):
    client.create_run("r", spec)
    defaults = {"resume": False, "world_size": ranks, "dp_world_size": ranks, "holder": "h"}
    return client.begin_attempt("r", **defaults | arguments)


class Rank:
    """One rank's training loop: what it consumed, and a hook before each micro-batch is taken."""

    def __init__(self, client: DataClient, attempt, rank: int, *, window: int = 4, before=lambda step, taken: None):
        self.client, self.attempt, self.rank, self.window, self.before = client, attempt, rank, window, before
        self.consumed: Counter[bytes] = Counter()
        self.steps: list[int] = []

    def train(self) -> "Rank":
        arguments = {"world_rank": self.rank, "dp_rank": self.rank, "next_step": self.attempt.base.step + 1}
        with self.client.stream("r", self.attempt, **arguments, credits=self.window) as stream:
            for step in stream:
                self.steps.append(step.number)
                for taken, micro_batch in enumerate(step):
                    self.before(step, taken)
                    self.consumed.update(samples_of(micro_batch))
                stream.ack(step)
        return self


def train_together(ranks: list[Rank]) -> Counter[bytes]:
    with ThreadPoolExecutor(len(ranks)) as threads:
        done = list(threads.map(Rank.train, ranks))
    assert len({tuple(rank.steps) for rank in done}) == 1
    return sum((rank.consumed for rank in done), Counter())


def test_a_server_killed_in_the_middle_of_steps_costs_no_sample(serve, connect, spec, samples):
    server = serve()
    kills = {(3, 1)}

    def kill(step, taken):
        if (step.number, taken) in kills:
            kills.remove((step.number, taken))
            server.kill()
            server.start()

    client = connect(server.endpoint)
    attempt = begin(client, spec, ranks=2)
    consumed = train_together([Rank(client, attempt, 0, before=kill, window=2), Rank(client, attempt, 1, window=2)])
    assert kills == set()
    assert consumed == samples
    run = client.get_run("r")
    assert run.ended
    assert run.consumed_step == run.sealed_step
    assert [event.kind for event in client.list_run_events("r")].count("attempt_begun") == 1


def test_ranks_fail_over_to_another_replica(serve, store, connect, spec, samples, caplog):
    caplog.set_level(logging.WARNING, "dataserver.client")
    first = serve()

    def kill(step, taken):
        if (step.number, taken) == (3, 0):
            first.kill()

    with running_server({"chat": store}, ledger_url=first.ledger) as second:
        client = connect(f"{first.endpoint},{second.endpoint}")
        attempt = begin(client, spec, ranks=2)
        assert train_together([Rank(client, attempt, 0, before=kill), Rank(client, attempt, 1)]) == samples
        assert client.get_run("r").ended
    messages = [record.getMessage() for record in caplog.records if "world rank" in record.getMessage()]
    assert any(f"{first.endpoint} is away" in message and "world rank 0" in message for message in messages)
    assert not any("world rank 1 " in message for message in messages), "rank 1 began at the second replica"


@pytest.mark.slow
def test_a_frozen_server_is_noticed_and_its_return_too(serve, connect, spec, samples):
    server = serve()
    client = connect(server.endpoint, patience_s=100.0)

    def freeze(step, taken):
        if (step.number, taken) == (3, 0):
            server.signal(signal.SIGSTOP)

    attempt = begin(client, spec)
    with logged("is away (") as noticed, ThreadPoolExecutor(1) as threads:
        training = threads.submit(train_together, [Rank(client, attempt, 0, before=freeze, window=1)])
        try:
            assert noticed.wait(60), "a peer that answers no ping counts as gone after 40 s"
        finally:
            server.signal(signal.SIGCONT)
        assert training.result(60) == samples


def test_a_finished_rank_ends_normally_though_the_server_is_gone(store, connect, spec, monkeypatch):
    monkeypatch.setattr("dataserver.client.stream._END_WAIT_S", 0.3)
    with running_server({"chat": store}) as server:
        client = connect(server.endpoint)
        attempt = begin(client, spec)
        with client.stream("r", attempt, world_rank=0, dp_rank=0, next_step=1) as stream:
            for step in stream:
                list(step)
                stream.ack(step)
                if step.last:
                    server.stop()
    assert step.last


def test_a_server_that_stays_away_is_given_up(store, connect, spec):
    with running_server({"chat": store}) as server:
        client = connect(server.endpoint, patience_s=1.0)
        attempt = begin(client, spec)
        stream = client.stream("r", attempt, world_rank=0, dp_rank=0, next_step=1, credits=1)
        step = next(stream)
        server.stop()
        with pytest.raises(UnavailableError, match=rf"world rank 0 of run r, attempt 1: no .* {server.endpoint}"):
            list(step)
        with pytest.raises(UnavailableError, match="RunService/GetRun"):
            client.get_run("r")


def test_a_consumer_that_stops_in_the_middle_of_a_step_frees_the_run_at_once(store, connect, spec, samples):
    with running_server({"chat": store}) as server:
        client = connect(server.endpoint)
        attempt = begin(client, spec)
        stream = client.stream("r", attempt, world_rank=0, dp_rank=0, next_step=1, credits=2)
        next(next(stream))
        with pytest.raises(AttemptAliveError):
            begin(client, spec, holder="other")
        stream.close()
        resumed = begin(client, spec, holder="other")
        assert resumed.number == attempt.number + 1
        assert train_together([Rank(client, resumed, 0)]) == samples


def test_a_run_resumes_from_a_cursor_at_another_world_size(store, connect, spec, samples):
    with running_server({"chat": store}) as server:
        client = connect(server.endpoint)
        attempt = begin(client, spec, ranks=2)
        first = [Rank(client, attempt, rank) for rank in range(2)]
        stop_after, cursors = 3, []

        def partial(rank: Rank) -> None:
            with client.stream("r", attempt, world_rank=rank.rank, dp_rank=rank.rank, next_step=1) as stream:
                for step in stream:
                    for micro_batch in step:
                        rank.consumed.update(samples_of(micro_batch))
                    stream.ack(step)
                    if step.number == stop_after:
                        cursors.append(step.end)
                        return

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(partial, first))
        assert cursors[0] == cursors[1]
        client.commit_cursor("r", attempt, cursors[0], "file:///checkpoint")
        assert client.get_cursor("r").checkpoint_uri == "file:///checkpoint"
        attempt = begin(client, spec, ranks=3, resume=True, cursor=cursors[0], wait_alive_s=30)
        rest = train_together([Rank(client, attempt, rank) for rank in range(3)])
        assert first[0].consumed + first[1].consumed + rest == samples


def test_a_displaced_trainer_hears_it_in_its_loop(store, connect, spec):
    with running_server({"chat": store}) as server:
        client = connect(server.endpoint)
        attempt = begin(client, spec)
        with client.stream("r", attempt, world_rank=0, dp_rank=0, next_step=1, credits=1) as stream:
            step = next(stream)
            begin(client, spec, holder="other", take_over=True)
            with pytest.raises(StaleAttemptError, match=r"attempt 1 is over: attempt 2 has begun"):
                list(step)


def test_an_attempt_waits_for_its_predecessor_to_end(store, connect, spec):
    with running_server({"chat": store}) as server:
        client = connect(server.endpoint)
        attempt = begin(client, spec)
        stream = client.stream("r", attempt, world_rank=0, dp_rank=0, next_step=1)
        next(stream)
        with logged("for the attempt before to end") as refused, ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(begin, client, spec, holder="successor", wait_alive_s=60)
            assert refused.wait(60)
            stream.close()
            assert waiting.result(30).number == 2


@contextmanager
def logged(text: str) -> Iterator[threading.Event]:
    """An event that is set once the client logs `text`."""
    event = threading.Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if text in record.getMessage():
                event.set()

    handler = Handler()
    logger = logging.getLogger("dataserver.client")
    logger.addHandler(handler)
    try:
        yield event
    finally:
        logger.removeHandler(handler)


@pytest.fixture
def pem(certified):
    """A directory with `key.pem`, a `certificate.pem` for loopback, and a `token`."""
    (certified / "token").write_text(4 * "abcd" + "\n")
    return certified


def test_a_token_is_asked_for_and_checked_over_tls(store, connect, spec, pem):
    tls = {"certificate": pem / "certificate.pem", "key": pem / "key.pem"}
    token = (pem / "token").read_text().strip()
    with running_server({"chat": store}, token_file=pem / "token", tls=tls) as server:
        for wrong in (None, token.upper()):
            client = connect(server.endpoint, token=wrong, ca=pem / "certificate.pem")
            with pytest.raises(UnauthenticatedError):
                client.list_runs()
            with pytest.raises(UnauthenticatedError):
                next(client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1))
        client = connect(server.endpoint, token=token, ca=pem / "certificate.pem")
        attempt = begin(client, spec)
        assert next(client.stream("r", attempt, world_rank=0, dp_rank=0, next_step=1)).number == 1
        client = connect(server.endpoint, token=token, patience_s=0.1)
        with pytest.raises(UnavailableError, match=server.endpoint):
            client.list_runs()


def test_requests_that_cannot_be_granted_say_why(store, connect, spec):
    with running_server({"chat": store}) as server:
        client = connect(server.endpoint)
        with pytest.raises(RunNotFoundError, match="nobody"):
            client.get_run("nobody")
        begin(client, spec)
        other = spec.model_copy(update={"order": spec.order.model_copy(update={"seed": 4})})
        with pytest.raises(RunConflictError, match="seed"):
            client.create_run("r", other)
        client.create_run("s", other)
        foreign = client.get_cursor("s").cursor
        with pytest.raises(ForeignCursorError, match="seed"):
            client.begin_attempt(
                "r", resume=True, cursor=foreign, world_size=1, dp_world_size=1, holder="h", take_over=True
            )


def test_a_watched_run_shows_its_changes_across_a_restart(store, connect, spec):
    with running_server({"chat": store}) as server:
        client = connect(server.endpoint)
        begin(client, spec)
        watch = client.watch_run("r")
        assert next(watch).attempt.number == 1
        server.restart()
        begin(client, spec, holder="next", take_over=True)
        assert next(run for run in watch if run.attempt.number == 2).attempt.holder == "next"
        watch.close()


def test_what_is_shown_agrees_with_what_is_streamed(store, connect, spec):
    with running_server({"chat": store}) as server:
        client = connect(server.endpoint)
        attempt = begin(client, spec)
        with client.stream("r", attempt, world_rank=0, dp_rank=0, next_step=1) as stream:
            step = next(stream)
            batches = list(step)
        described = client.describe_step("r", 1)
        assert (described.plan_digest, described.end, described.attempt) == (step.plan_digest, step.end, 1)
        assert [[sample.length for sample in planned.samples] for planned in described.micro_batches] == [
            batch.lengths.tolist() for batch in batches
        ]
        first = described.micro_batches[0].samples[0]
        shown = client.list_samples("chat", first.row, first.row + 1, max_length=64)[0]
        assert list(shown.input_ids) == batches[0].tokens[: first.length].tolist()
        assert client.get_store("chat", max_length=16).cut_tokens > 0
        assert [store.name for store in client.list_stores()] == ["chat"]
