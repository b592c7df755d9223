"""The loss on a held-out store: exact at any number of ranks, and without a trace in training."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainerlab.jobs import job_config, tiny_model
from trainerlab.ranks import on_ranks
from trainerlab.reference import reference_step
from trainerlab.samples import VOCABULARY, draw_samples

from dataserver.errors import InvalidSpecError, StoreNotFoundError
from dataserver.testing import running_server, write_store
from trainer.config import TrainerConfig
from trainer.data import Endpoint, ServerFeed
from trainer.launch import World

HELD_OUT = draw_samples(23, seed=5)
THIN = {"config": tiny_model() | {"num_hidden_layers": 1}}
EVAL = {"store": "dev", "every_steps": 2}


@pytest.fixture
def endpoint(tmp_path: Path) -> Any:
    chat = write_store(tmp_path / "chat", lengths=[5, 9, 14, 3, 20, 8] * 6, vocab_size=VOCABULARY)
    rows = [(sample.tokens.tolist(), sample.mask.astype(int).tolist()) for sample in HELD_OUT if sample.targets]
    dev = write_store(tmp_path / "dev", rows=rows)
    foreign = write_store(tmp_path / "foreign", lengths=[5], vocab_size=VOCABULARY * 100)
    with running_server({"chat": chat, "dev": dev, "foreign": foreign}) as server:
        yield server.endpoint


def config_of(directory: Path, name: str, *, steps: int = 3, **sections: Any) -> TrainerConfig:
    order = {"sources": [{"store": "chat"}], "max_length": 24, "seed": 7}
    batch = {"step_samples": 6, "micro_batch_tokens": 40, "max_steps": steps}
    run = {"name": name, "order": order, "batch": batch}
    return job_config(directory / name, run=run, model=THIN, **sections)


def train_from(world: World, config: TrainerConfig, endpoint: str) -> dict[str, np.ndarray]:
    """Train; returns this rank's part of every weight."""
    from torch import nn

    from trainer import train as loop

    built: list[nn.Module] = []
    real = loop.build

    def remembered(*arguments: Any) -> Any:
        model, optimizer = real(*arguments)
        built.append(model)
        return model, optimizer

    loop.build = remembered
    feed = ServerFeed(Endpoint(addresses=endpoint, config=config.data), config.run)
    try:
        loop.train(config, world, feed)
    finally:
        loop.build = real
        feed.close()
    return {name: weight.to_local().detach().numpy().copy() for name, weight in built[0].named_parameters()}


def lines_of(config: TrainerConfig) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    lines = [json.loads(line) for line in config.metrics.jsonl.read_text().splitlines()]
    return [line for line in lines if "loss" in line], [line for line in lines if "eval_loss" in line]


def test_training_is_the_same_to_the_bit_with_evaluations_and_without(tmp_path: Path, endpoint: str) -> None:
    measured, plain = (
        config_of(tmp_path, name, **sections) for name, sections in (("measured", {"eval": EVAL}), ("plain", {}))
    )
    weights = [on_ranks(2, train_from, config, endpoint) for config in (measured, plain)]
    for with_it, without_it in zip(*weights, strict=True):
        assert with_it.keys() == without_it.keys()
        for name, weight in with_it.items():
            np.testing.assert_array_equal(weight, without_it[name])
    steps, evaluations = lines_of(measured)
    assert [(line["loss"], line["grad_norm"]) for line in steps] == [
        (line["loss"], line["grad_norm"]) for line in lines_of(plain)[0]
    ]
    assert [line["step"] for line in evaluations] == [2, 3]


@pytest.mark.slow
def test_the_loss_is_one_number_at_any_number_of_ranks_and_that_of_a_plain_reference(
    tmp_path: Path, endpoint: str
) -> None:
    told = []
    for ranks in (1, 2, 3):
        # A learning rate that changes no weight: every size measures the same model.
        config = config_of(tmp_path, f"ranks-{ranks}", steps=1, eval=EVAL, optim={"lr": 1e-45, "weight_decay": 0.0})
        on_ranks(ranks, train_from, config, endpoint)
        [evaluation] = lines_of(config)[1]
        told.append((evaluation["eval_loss"], evaluation["eval_targets"], evaluation["eval_samples"]))
    assert told[0] == told[1] == told[2]
    samples = [sample for sample in HELD_OUT if sample.targets]
    assert told[0][1:] == (sum(sample.targets for sample in samples), len(samples))
    assert told[0][0] == pytest.approx(reference_step(config.model, samples)[0], rel=1e-6)


def expect_error(world: World, config: TrainerConfig, endpoint: str) -> str:
    from dataserver.errors import DataServerError

    try:
        train_from(world, config, endpoint)
    except DataServerError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


@pytest.mark.parametrize(("store", "error"), [("none", StoreNotFoundError), ("foreign", InvalidSpecError)])
def test_a_store_that_cannot_be_measured_is_refused_before_the_first_step(
    tmp_path: Path, endpoint: str, store: str, error: type[Exception]
) -> None:
    config = config_of(tmp_path, "refused", eval=EVAL | {"store": store})
    [told] = on_ranks(1, expect_error, config, endpoint)
    assert told.startswith(error.__name__)
    assert store in told
    assert not config.metrics.jsonl.exists() or not config.metrics.jsonl.read_text()
