"""The loop hands weights over when a stamp or an offer says so, at no other time, and trains the same."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainerlab.jobs import RUN, MemoryFeed, job_config
from trainerlab.peer import Peer
from trainerlab.ranks import RankFailedError, on_ranks
from trainerlab.samples import FINGERPRINT, MemoryStep, deal, draw_samples

from dataserver.weight_sync import Offer, OrchestratorAddress, PolicyVersion
from trainer.checkpoint import Lineage
from trainer.config import TrainerConfig
from trainer.launch import World

STEPS = 5


def steps(stamped: tuple[int, ...]) -> list[list[MemoryStep]]:
    dealt = [
        deal(draw_samples(5, seed=number), ranks=2, rounds=2, seed=number, number=number, last=number == STEPS)
        for number in range(1, STEPS + 1)
    ]
    return [[replace(step, sync_weights=step.number in stamped) for step in ranks] for ranks in dealt]


def offer(number: int, version: int, *, attempt: int = 1, sync: bool = True) -> Offer:
    made = PolicyVersion(attempt=attempt, number=version)
    return Offer(number=number, version=made, sync_weights=sync, orchestrator=None)


def train_with_peer(
    world: World, config: TrainerConfig, feed: MemoryFeed, faults: tuple[str, ...]
) -> tuple[MemoryFeed, list[int], dict[str, np.ndarray]]:
    """Train, the stamps naming a peer on rank 0; tells the versions that it received, and the last one's weights."""
    from trainer.train import train

    peer = Peer((1,), faults, events=feed.events) if world.is_first else None
    if peer is not None:
        name_orchestrator(feed, OrchestratorAddress(epoch=1, address=peer.address))
    train(config, world, feed)
    if peer is None:
        return feed, [], {}
    peer.close()
    return feed, [version for version, _ in peer.received], peer.received[-1][1][0] if peer.received else {}


def name_orchestrator(feed: MemoryFeed, orchestrator: OrchestratorAddress) -> None:
    feed.offers = [replace(each, orchestrator=orchestrator) for each in feed.offers]
    for ranks in feed.steps:
        for step in ranks:
            step.orchestrator = orchestrator if step.sync_weights else None


def lines(config: TrainerConfig, key: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in config.metrics.jsonl.read_text().splitlines()]
    return [line for line in found if key in line]


def test_weights_move_at_stamps_and_offers_and_never_else(tmp_path: Path) -> None:
    config = job_config(tmp_path / "with", weights={"transport": "gloo", "bucket_bytes": 8192})
    after = [offer(1, STEPS, attempt=2), offer(2, STEPS, attempt=2), offer(3, STEPS, attempt=2, sync=False)]
    lineage = Lineage(run=RUN, run_uid="uid", order_fingerprints=(FINGERPRINT,), attempt=1, base_step=0)
    feed = MemoryFeed(steps((2, 4)), lineage=lineage, offers=[offer(0, 0), *after])
    told, received, weights = on_ranks(2, train_with_peer, config, feed, ("", "", "", "refuses"))[0]
    assert received == [0, 2, 4, 5]
    events = [event for event in told.events if event not in {"commit", "abort"}]
    assert events == [
        "prepare", "ack offer 0", "ack 1", "prepare", "ack 2", "ack 3", "prepare", "ack 4", "ack 5",
        "prepare", "ack offer 1", "prepare", "ack offer 2", "ack offer 3",
    ]  # fmt: skip
    outcomes = ["landed", "landed", "landed", "skipped", "landed"]
    assert [sync.outcome.value for sync in told.reported] == outcomes
    # Attempt 2 begins with what attempt 1 made: under another name the ledger refuses its report.
    assert [str(sync.version) for sync in told.reported] == ["1.0", "2.2", "2.4", "2.5", "2.5"]
    told_lines = lines(config, "sync_outcome")
    assert [(line["step"], line["sync_outcome"]) for line in told_lines] == list(
        zip([0, 2, 4, 5, 5], outcomes, strict=True)
    )
    assert all(0 < line["sync_stall_s"] <= line["sync_s"] for line in told_lines)
    assert told_lines[-1]["sync_landed"] == 4
    assert told_lines[-1]["sync_skipped"] == 1
    assert told_lines[0]["sync_bytes"] == sum(map(len, weights.values()))


@pytest.mark.parametrize("first", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_transports_that_differ_are_refused_before_the_first_step_and_cost_only_syncs_later(
    tmp_path: Path, first: bool
) -> None:
    config = job_config(tmp_path, weights={"transport": "gloo"})
    feed = MemoryFeed(steps((2,)), offers=[offer(0, 0, sync=first)])
    if first:
        with pytest.raises(RankFailedError) as refused:
            on_ranks(2, train_with_peer, config, feed, ("takes another transport",))
        told = "InvalidConfigError: [weights]: refused (transport): 'gloo' here: make them equal"
        assert str(refused.value).count(told) == 2
        assert lines(config, "loss") == []
    else:
        told, received, _ = on_ranks(2, train_with_peer, config, feed, ("takes another transport",))[0]
        assert [sync.outcome.value for sync in told.reported] == ["skipped"]
        assert received == []
        assert len(lines(config, "loss")) == STEPS


@pytest.mark.slow
def test_training_is_the_same_to_the_bit_with_syncs_and_without(tmp_path: Path) -> None:
    weights = {"transport": "filesystem", "directory": str(tmp_path / "weights"), "dtype": "bf16"}
    given = job_config(tmp_path / "with", weights=weights)
    plain = job_config(tmp_path / "without")
    stamped = MemoryFeed(steps((1, 2, 3, 4, 5)), offers=[offer(0, 0)])
    faults = ("", "dies in prepare", "", "dies before it commits")
    _, received, _ = on_ranks(2, train_with_peer, given, stamped, faults)[0]
    assert received == [0, 2, 4, 5]
    on_ranks(2, train_with_peer, plain, MemoryFeed(steps(())), ())
    for figure in ("loss", "grad_norm"):
        assert [line[figure] for line in lines(given, "loss")] == [line[figure] for line in lines(plain, "loss")]


def train_quietly(world: World, config: TrainerConfig, feed: MemoryFeed) -> tuple[MemoryFeed, list[str]]:
    """Train without naming an orchestrator; tells what was logged."""
    import logging

    from trainer.train import train

    told: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    logging.getLogger("trainer").addHandler(Ear())
    train(config, world, feed)
    return feed, told


def test_without_weights_in_the_configuration_stamps_are_ignored_and_told_once(tmp_path: Path) -> None:
    feed, told = on_ranks(2, train_quietly, job_config(tmp_path), MemoryFeed(steps((2, 3))))[0]
    assert [event for event in feed.events if event.startswith("ack")] == [f"ack {n}" for n in range(1, 6)]
    [line] = [line for line in told if "[weights]" in line]
    assert line.startswith("step 2 asks for its weights")


@pytest.mark.slow
def test_a_stamp_without_an_orchestrator_is_skipped_and_reported(tmp_path: Path) -> None:
    config = job_config(tmp_path, weights={"transport": "gloo"})
    feed, _ = on_ranks(2, train_quietly, config, MemoryFeed(steps((2,)), offers=[offer(0, 0, sync=False)]))[0]
    [sync] = feed.reported
    assert (sync.outcome.value, sync.version.number) == ("skipped", 2)
    assert "no orchestrator held the run's lease" in sync.detail


def train_on_feeds(world: World, config: TrainerConfig, feeds: list[MemoryFeed]) -> list[str]:
    """Train, each rank on a feed of its own; tells what the rank's feed was told."""
    from trainer.train import train

    train(config, world, feeds[world.rank])
    return feeds[world.rank].events


def test_ranks_stop_taking_offers_together_when_one_finds_no_server(tmp_path: Path) -> None:
    more = [offer(0, 0, sync=False), offer(1, STEPS, sync=False), offer(2, STEPS, sync=False)]
    feeds = [MemoryFeed(steps(()), offers=more), MemoryFeed(steps(()), offers=more[:2], lost=True)]
    told = on_ranks(2, train_on_feeds, job_config(tmp_path, weights={"transport": "gloo"}), feeds)
    assert [events[-2:] for events in told] == [["ack 5", "ack offer 1"]] * 2
