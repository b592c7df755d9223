"""Loss and gradient of a step depend on its samples, and on nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainerlab.jobs import job_config, open_job, tiny_model
from trainerlab.ranks import on_ranks
from trainerlab.reference import Gradients, reference_step
from trainerlab.samples import Sample, deal, draw_samples

from trainer.config import TrainerConfig
from trainer.launch import World

SAMPLES = draw_samples(13, seed=3)
RANDOM = np.random.default_rng(8)
# Some targets weigh nothing, and all of the first sample's.
WEIGHTED = [
    replace(
        sample,
        weights=((index > 0) * RANDOM.choice([0, 0.1, 0.5, 1, 3], len(sample.tokens))).astype(np.float32),
    )
    for index, sample in enumerate(SAMPLES)
]
NO_WEIGHT = [replace(sample, weights=np.zeros(len(sample.tokens), dtype=np.float32)) for sample in SAMPLES]
RANKS = [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
NO_TARGETS = [Sample(tokens=sample.tokens, mask=np.arange(len(sample.tokens)) < 1) for sample in SAMPLES]


def gradients_of(world: World, config: TrainerConfig, deals: list[Any]) -> list[tuple[float, Gradients]]:
    """Loss and gradient of each step in `deals`, from the same weights."""
    job = open_job(config, world)
    found = []
    for steps in deals:
        sums = job.forward_backward(steps[world.rank])
        figures = job.figures(steps[world.rank], sums, lr=0.0, grad_norm=0.0, step_s=1.0)
        whole = {name: weight.grad.full_tensor().numpy() for name, weight in job.model.named_parameters()}
        job.optimizer.zero_grad()
        found.append((figures.loss, whole))
    return found


def assert_close(found: tuple[float, Gradients], expected: tuple[float, Gradients], tolerance: float = 2e-6) -> None:
    assert found[0] == pytest.approx(expected[0], rel=tolerance)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        scale = np.abs(gradient).max()
        assert np.abs(found[1][name] - gradient).max() <= tolerance * scale * 10, name


@pytest.mark.parametrize("ranks", RANKS)
def test_loss_and_gradient_do_not_depend_on_packing_rounds_alignment_or_ranks(tmp_path: Path, ranks: int) -> None:
    config = job_config(tmp_path)
    deals = [
        deal(SAMPLES, ranks=ranks, rounds=1, seed=0),
        deal(SAMPLES, ranks=ranks, rounds=4, seed=1),
        deal(SAMPLES, ranks=ranks, rounds=13, seed=2),
        deal(SAMPLES, ranks=ranks, rounds=3, seed=3, alignment=8),
    ]
    expected = reference_step(config.model, SAMPLES)
    for on_rank in on_ranks(ranks, gradients_of, config, deals):
        for found in on_rank:
            assert_close(found, expected)


@pytest.mark.parametrize("ranks", RANKS)
def test_weighted_loss_and_gradient_do_not_depend_on_packing_either(tmp_path: Path, ranks: int) -> None:
    config = job_config(tmp_path)
    deals = [
        deal(WEIGHTED, ranks=ranks, rounds=1, seed=0),
        deal(WEIGHTED, ranks=ranks, rounds=5, seed=1, alignment=8),
    ]
    expected = reference_step(config.model, WEIGHTED)
    assert expected[0] != pytest.approx(reference_step(config.model, SAMPLES)[0], rel=1e-3)
    for on_rank in on_ranks(ranks, gradients_of, config, deals):
        for found in on_rank:
            assert_close(found, expected)


def test_a_step_whose_targets_all_weigh_nothing_has_loss_zero_and_no_gradient(tmp_path: Path) -> None:
    [[(loss, gradients)]] = on_ranks(
        1, gradients_of, job_config(tmp_path), [deal(NO_WEIGHT, ranks=1, rounds=2, seed=0)]
    )
    assert loss == 0.0
    assert all(not gradient.any() for gradient in gradients.values())


def test_a_step_without_targets_has_loss_zero_and_a_gradient_of_exact_zeros(tmp_path: Path) -> None:
    deals = [deal(NO_TARGETS, ranks=2, rounds=2, seed=0)]
    for [(loss, gradients)] in on_ranks(2, gradients_of, job_config(tmp_path), deals):
        assert loss == 0.0
        assert all(not gradient.any() for gradient in gradients.values())


def test_fewer_samples_than_ranks_train_the_same_as_on_one(tmp_path: Path) -> None:
    config = job_config(tmp_path)
    [[found], *_] = on_ranks(3, gradients_of, config, [deal(SAMPLES[:2], ranks=3, rounds=1, seed=4)])
    assert_close(found, reference_step(config.model, SAMPLES[:2]))


@pytest.mark.parametrize(
    ("model", "parallel"),
    [
        pytest.param({"config": tiny_model("llama")}, {}, marks=pytest.mark.slow),
        pytest.param({"config": tiny_model("qwen3", tied=True)}, {}, marks=pytest.mark.slow),
        ({"attention": "sdpa"}, {}),
        pytest.param({"activation_checkpointing": True}, {}, marks=pytest.mark.slow),
        ({}, {"reduce_every_round": True}),
        ({}, {"replicas": 2}),
    ],
    ids=["llama", "tied embeddings", "dense mask", "activation checkpointing", "reduce every round", "two replicas"],
)
def test_every_way_to_compute_it_gives_the_same_gradient(
    tmp_path: Path, model: dict[str, Any], parallel: dict[str, Any]
) -> None:
    config = job_config(tmp_path, model=model, parallel=parallel)
    [[found], _] = on_ranks(2, gradients_of, config, [deal(SAMPLES, ranks=2, rounds=3, seed=5)])
    assert_close(found, reference_step(config.model, SAMPLES))


def test_bf16_computes_near_float32_and_reduces_in_float32(tmp_path: Path) -> None:
    config = job_config(tmp_path, model={"dtype": "bf16"})
    [[found], _] = on_ranks(2, gradients_of, config, [deal(SAMPLES, ranks=2, rounds=3, seed=5)])
    loss, gradients = reference_step(config.model, SAMPLES)
    assert found[0] == pytest.approx(loss, rel=1e-2)
    assert found[0] != pytest.approx(loss, rel=1e-7)
    for name, gradient in gradients.items():
        assert found[1][name].dtype == np.float32
        error = np.linalg.norm(found[1][name] - gradient) / np.linalg.norm(gradient)
        assert error < 0.1, name
