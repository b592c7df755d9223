"""A job that is started while another attempt of its run is alive goes on from what that one wrote last."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from trainerlab.jobs import RUN, job_config
from trainerlab.serving import write_numbered_store

from dataserver.client import DataClient, StepStream
from dataserver.errors import AttemptAliveError, PreconditionError
from dataserver.testing import RunningServer, running_server
from trainer import data
from trainer.checkpoint import Checkpoints, Record
from trainer.config import TrainerConfig
from trainer.data import Endpoint, ServerFeed
from trainer.start import choose_start

DEADLINE_S = 60


class Watcher(logging.Handler):
    """Sets an event at the first warning of the feed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told = Event()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
        self.told.set()


class Life:
    """A trainer that is alive: it has an attempt and a stream, and writes checkpoints."""

    def __init__(self, endpoint: str, config: TrainerConfig) -> None:
        self._checkpoints = Checkpoints(config.checkpoint.dir)
        self.feed = feed_of(endpoint, config)
        self._run_uid = self.feed.create_run(96).run_uid
        self._attempt = begin(self.feed, "first")
        self._stream: StepStream = self.feed.open(attempt=self._attempt, world_rank=0, dp_rank=0, next_step=1)
        self._steps = iter(self._stream)

    def take_a_step(self) -> None:
        step = next(self._steps)
        assert all(batch.step == step.number for batch in step)
        self._stream.ack(step)
        record = Record(
            run=RUN, run_uid=self._run_uid, attempt=self._attempt.number, world_size=1, cursor=step.end, config={}
        )
        path = self._checkpoints.commit(self._checkpoints.begin(record), record, [])
        assert self.feed.commit(attempt=self._attempt, cursor=step.end, uri=path.as_uri())

    def end(self) -> None:
        self._stream.close()
        self.feed.close()


def feed_of(endpoint: str, config: TrainerConfig) -> ServerFeed:
    return ServerFeed(Endpoint(addresses=endpoint, config=config.data), config.run)


def begin(feed: ServerFeed, holder: str, **changed: Any) -> Any:
    given = {"resume": None, "world_size": 1, "dp_world_size": 1, "take_over": False}
    return feed.begin(**given | changed, holder=holder)


def config_of(directory: Path, wait_alive_s: float) -> TrainerConfig:
    batch = {"step_samples": 6, "micro_batch_tokens": 40}
    return job_config(directory, run={"batch": batch}, data={"wait_alive_s": wait_alive_s})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server({"chat": write_numbered_store(tmp_path / "store", 40)}) as running:
        yield running


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watcher]:
    monkeypatch.setattr(data, "ASK_EVERY_S", 0.05)
    handler = Watcher()
    logging.getLogger("trainer.data").addHandler(handler)
    yield handler
    logging.getLogger("trainer.data").removeHandler(handler)


def test_the_checkpoint_is_chosen_after_the_attempt_before_has_ended(
    tmp_path: Path, server: RunningServer, watcher: Watcher
) -> None:
    config = config_of(tmp_path, DEADLINE_S)
    first = Life(server.endpoint, config)
    first.take_a_step()
    second = feed_of(server.endpoint, config)
    checkpoints = Checkpoints(config.checkpoint.dir)
    with ThreadPoolExecutor(1) as pool:
        chosen = pool.submit(choose_start, config, second, checkpoints, "auto", take_over=False)
        assert watcher.told.wait(DEADLINE_S)
        assert "attempt 1 to end before a checkpoint is chosen: 'first' holds it" in watcher.text
        first.take_a_step()
        first.end()
        start = chosen.result(DEADLINE_S)
    assert start.step == 2
    assert begin(second, "second", resume=start.checkpoint.record.cursor).base.step == 2
    second.close()


def test_a_wait_that_is_over_ends_the_job(tmp_path: Path, server: RunningServer, watcher: Watcher) -> None:
    first = Life(server.endpoint, config_of(tmp_path, DEADLINE_S))
    second = feed_of(server.endpoint, config_of(tmp_path, 0.2))
    with pytest.raises(AttemptAliveError, match="'first' holds it"):
        second.create_run(96, wait_alive=True)
    assert watcher.told.is_set()
    second.close()
    first.end()


def test_what_was_chosen_before_another_attempt_began_undoes_none_of_its_steps(
    tmp_path: Path, server: RunningServer
) -> None:
    config = config_of(tmp_path, DEADLINE_S)
    late = feed_of(server.endpoint, config)
    start = choose_start(config, late, Checkpoints(config.checkpoint.dir), "auto", take_over=False)
    first = Life(server.endpoint, config)
    first.take_a_step()
    first.end()
    assert start.checkpoint is None
    with pytest.raises(PreconditionError, match="attempt 1 began after this job had chosen"):
        begin(late, "late")
    with DataClient(server.endpoint) as client:
        assert client.get_run(config.run.name).attempt.number == 1
    late.close()


def test_who_takes_over_does_not_wait(tmp_path: Path, server: RunningServer, watcher: Watcher) -> None:
    config = config_of(tmp_path, DEADLINE_S)
    first = Life(server.endpoint, config)
    first.take_a_step()
    second = feed_of(server.endpoint, config)
    start = choose_start(config, second, Checkpoints(config.checkpoint.dir), "auto", take_over=True)
    assert start.step == 1
    assert not watcher.told.is_set()
    second.close()
    first.end()
