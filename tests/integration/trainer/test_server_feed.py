"""The trainer on a real data server."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from trainerlab.jobs import RUN, MemoryFeed, job_config, tiny_model
from trainerlab.ranks import on_ranks
from trainerlab.samples import VOCABULARY
from trainerlab.serving import RecordingFeed, write_numbered_store

from dataserver.client import DataClient
from dataserver.cursor import Cursor
from dataserver.errors import AlreadyCommittedError, RunConflictError, StoreNotFoundError
from dataserver.run_spec import Source
from dataserver.testing import RunningServer, attempt_info, running_server
from trainer import data
from trainer.config import TrainerConfig
from trainer.data import Endpoint, ServerFeed
from trainer.launch import World

ROWS = 40


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with running_server({"chat": write_numbered_store(tmp_path / "store", ROWS)}) as running:
        yield running


def config_of(directory: Path, steps: int, **sections: Any) -> TrainerConfig:
    batch = {"step_samples": 6, "micro_batch_tokens": 40, "max_steps": steps}
    order = {"sources": [{"store": "chat"}], "max_length": 24, "seed": 7}
    return job_config(directory, run={"order": order, "batch": batch}, **sections)


def feed_of(endpoint: str, config: TrainerConfig) -> ServerFeed:
    return ServerFeed(Endpoint(addresses=endpoint, config=config.data), config.run)


def train_both_ways(world: World, served: TrainerConfig, remembered: TrainerConfig, endpoint: str) -> None:
    """Train from the server, and again from what it sent."""
    from trainer.train import train

    feed = RecordingFeed(Endpoint(addresses=endpoint, config=served.data), served.run)
    train(served, world, feed)
    feed.close()
    steps = [dict.fromkeys([world.rank], step) for step in feed.stream.steps]
    train(remembered, world, MemoryFeed(steps))


def losses(config: TrainerConfig) -> list[tuple[float, float]]:
    lines = [json.loads(line) for line in config.metrics.jsonl.read_text().splitlines()]
    return [(line["loss"], line["grad_norm"]) for line in lines]


@pytest.mark.slow
def test_fed_from_memory_and_from_the_server_the_loss_is_equal_to_the_bit_over_100_steps(
    tmp_path: Path, server: RunningServer
) -> None:
    thin = {"config": tiny_model() | {"num_hidden_layers": 1}}
    served, remembered = (config_of(tmp_path / name, 100, model=thin) for name in ("served", "remembered"))
    on_ranks(2, train_both_ways, served, remembered, server.endpoint)
    assert len(losses(served)) == 100
    assert losses(served) == losses(remembered)
    with DataClient(server.endpoint) as client:
        run = client.get_run(RUN)
    assert (run.consumed_step, run.committed.step, run.ended) == (100, 100, True)


def test_every_rank_waits_for_the_stores_of_all_stages_of_the_run(tmp_path: Path) -> None:
    stores = {name: write_numbered_store(tmp_path / name, ROWS) for name in ("chat", "later")}
    ledger_url = f"sqlite:///{tmp_path}/ledger.db"
    config = config_of(tmp_path, 4)
    with running_server(stores, ledger_url=ledger_url) as both, closing(feed_of(both.endpoint, config)) as feed:
        feed.await_stores(["chat"])  # before there is a run
        feed.create_run(VOCABULARY)
        later = config.run.order.model_copy(update={"sources": (Source(store="later"),)})
        with DataClient(both.endpoint) as client:
            client.amend_run(RUN, 3, later)
    with (
        running_server({"chat": stores["chat"]}, ledger_url=ledger_url) as first,
        closing(feed_of(first.endpoint, config)) as feed,
        pytest.raises(StoreNotFoundError, match="no store 'later'"),
    ):
        feed.await_stores(["chat"])


def train_from(world: World, config: TrainerConfig, endpoint: str, resume: Any) -> None:
    from trainer.train import train

    feed = feed_of(endpoint, config)
    try:
        train(config, world, feed, resume=resume)
    finally:
        feed.close()


def test_a_finished_run_goes_on_when_it_is_given_more_steps(tmp_path: Path, server: RunningServer) -> None:
    on_ranks(1, train_from, config_of(tmp_path, 2), server.endpoint, "auto")
    on_ranks(1, train_from, config_of(tmp_path, 2), server.endpoint, "auto")
    on_ranks(2, train_from, config_of(tmp_path, 4), server.endpoint, "auto")
    with DataClient(server.endpoint) as client:
        run = client.get_run(RUN)
        assert [commit.checkpoint_uri.rpartition("/")[2] for commit in client.list_cursors(RUN)][-1] == (
            "step-00000004-attempt-3"
        )
    assert run.committed.step == 4
    assert len(losses(config_of(tmp_path, 4))) == 4


def refused_start(world: World, config: TrainerConfig, endpoint: str) -> str:
    from trainer.train import train

    feed = feed_of(endpoint, config)
    try:
        train(config, world, feed, resume="none")
    except AlreadyCommittedError as error:
        return str(error)
    finally:
        feed.close()
    return "no error"


def test_a_fresh_start_on_a_run_with_committed_steps_is_refused(tmp_path: Path, server: RunningServer) -> None:
    on_ranks(1, train_from, config_of(tmp_path, 2), server.endpoint, "auto")
    [told] = on_ranks(1, refused_start, config_of(tmp_path, 4), server.endpoint)
    assert "has committed step 2" in told


def test_after_a_rewind_the_lineage_leaves_out_what_was_abandoned(tmp_path: Path, server: RunningServer) -> None:
    config = config_of(tmp_path, 4, checkpoint={"dir": str(tmp_path / "checkpoints"), "every_steps": 2})
    feed = feed_of(server.endpoint, config)
    assert (feed.create_run(96).attempt, feed.create_run(96).base_step) == (0, 0)
    on_ranks(1, train_from, config, server.endpoint, "auto")
    assert (feed.create_run(96).attempt, feed.create_run(96).base_step) == (1, 0)
    with DataClient(server.endpoint) as client:
        client.rewind_run(RUN, 2)
    lineage = feed.create_run(96)
    feed.close()
    assert (lineage.attempt, lineage.base_step) == (2, 2)


def test_another_order_under_the_runs_name_is_refused_by_field(tmp_path: Path, server: RunningServer) -> None:
    config = config_of(tmp_path, 4)
    feed_of(server.endpoint, config).create_run(96)
    order = config.run.order.model_copy(update={"seed": 8})
    other = config.model_copy(update={"run": config.run.model_copy(update={"order": order})})
    with pytest.raises(RunConflictError, match="seed"):
        feed_of(server.endpoint, other).create_run(96)


def test_a_commit_that_does_not_arrive_is_logged_and_ends_nothing(
    tmp_path: Path, server: RunningServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(data, "COMMIT_PATIENCE_S", 0.2)
    feed = feed_of(server.endpoint, config_of(tmp_path, 4))
    [fingerprint] = feed.create_run(96).order_fingerprints
    server.stop()
    feed.commit(attempt=attempt_info(), cursor=Cursor(order_fingerprint=fingerprint, step=1), uri="file:///x")
    feed.close()
    assert "the commit of step 1 did not arrive" in caplog.text
