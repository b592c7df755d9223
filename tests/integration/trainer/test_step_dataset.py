"""Steps as a data set: what is acknowledged, saved, refused; and the Hugging Face example."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from trainerlab.jobs import RUN, MemoryFeed
from trainerlab.samples import VOCABULARY, deal, draw_samples
from trainerlab.serving import write_numbered_store

from dataserver.client import DataClient
from dataserver.errors import InvalidRequestError, PreconditionError
from dataserver.testing import running_server
from trainer.dataset import StepDataset
from trainer.launch import World

WORLD = World(rank=0, size=1, local_rank=0, device=torch.device("cpu"), holder="test", under_torchrun=False)
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "hf_trainer.py"


def steps(count: int = 4) -> list[Any]:
    return [
        deal(draw_samples(4, seed=number), ranks=1, rounds=2, seed=number, number=number, last=number == count)
        for number in range(1, count + 1)
    ]


def dataset(feed: MemoryFeed, run: str = RUN) -> StepDataset:
    return StepDataset(feed, run=run, vocab_size=VOCABULARY, world=WORLD)


def test_a_data_loader_yields_whole_steps_in_order() -> None:
    items = list(DataLoader(dataset(MemoryFeed(steps())), batch_size=None))
    assert [item["step"] for item in items] == [1, 2, 3, 4]
    assert [item["last"] for item in items] == [False, False, False, True]
    assert all(len(item["micro_batches"]) == 2 and item["target_count"] > 0 for item in items)


def test_a_step_counts_as_done_once_it_is_acknowledged_and_not_before() -> None:
    held = dataset(MemoryFeed(steps()))
    items = iter(held)
    next(items)
    assert json.loads(held.state_dict()["cursor"] or "null") is None
    held.ack()
    assert json.loads(held.state_dict()["cursor"])["step"] == 1
    next(items)
    next(items)
    assert json.loads(held.state_dict()["cursor"])["step"] == 2


def test_a_loaded_state_goes_on_behind_it_and_can_be_saved_again() -> None:
    first = dataset(MemoryFeed(steps()))
    items = iter(first)
    next(items)
    next(items)
    first.ack()
    feed = MemoryFeed(steps())
    second = dataset(feed)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
    assert [item["step"] for item in second] == [3, 4]
    assert [cursor.step for cursor in feed.begun] == [2]
    third = dataset(MemoryFeed(steps()))
    third.load_state_dict(second.state_dict())
    assert list(third) == []


def test_an_iteration_that_another_one_followed_acknowledges_nothing() -> None:
    held = dataset(MemoryFeed(steps()))
    first = iter(held)
    next(first)
    second = iter(held)
    next(second)
    with pytest.raises(PreconditionError, match="this iteration is over"):
        next(first)
    assert held.state_dict()["cursor"] is None
    assert next(second)["step"] == 2


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (None, "not the state of a StepDataset"),
        ({"version": 1, "run": RUN, "cursor": 5}, "not the state of a StepDataset"),
        ({}, "not the state of a StepDataset"),
        ({"epoch": 1, "index": 7}, "not the state of a StepDataset"),
        ({"version": 2, "run": RUN, "cursor": None}, "not the state of a StepDataset"),
        ({"version": 1, "run": "other", "cursor": None}, "belongs to run 'other'"),
        ({"version": 1, "run": RUN, "cursor": "{}"}, "not a cursor"),
    ],
)
def test_a_foreign_state_is_refused(state: Any, told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told):
        dataset(MemoryFeed(steps())).load_state_dict(state)


def test_data_loader_workers_are_refused_with_the_reason() -> None:
    loader = DataLoader(
        dataset(MemoryFeed(steps())), batch_size=None, num_workers=1, multiprocessing_context="forkserver"
    )
    with pytest.raises(PreconditionError, match="num_workers=0"):
        list(loader)


@pytest.mark.slow
def test_the_hugging_face_example_trains_stops_and_goes_on_exactly(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("hf_trainer_example", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with running_server({"chat": write_numbered_store(tmp_path / "store", 60)}) as server:
        words = ["--data-endpoint", server.endpoint, "--out", str(tmp_path / "out")]
        first = example.main([*words, "--steps", "3"])
        second = example.main([*words, "--steps", "5"])
        with DataClient(server.endpoint) as client:
            run = client.get_run("hf-trainer")
    logged = [entry["loss"] for entry in second.state.log_history if "loss" in entry]
    assert (first.state.global_step, second.state.global_step) == (3, 5)
    assert len(logged) == 5
    assert logged[-1] < logged[0]
    assert (run.attempt.number, run.attempt.base.step, run.consumed_step) == (2, 3, 5)
    assert run.committed.step == 5
