"""The learning rate is a function of the step, and only matrices decay."""

import pytest
import torch

from trainer.config import OptimConfig, ScheduleKind
from trainer.optim import build_optimizer, learning_rate, set_learning_rate


def rates(config: OptimConfig, total: int | None, steps: list[int]) -> list[float]:
    return [learning_rate(config, step, total) for step in steps]


def test_warm_up_rises_in_a_line_and_reaches_the_rate_at_its_last_step() -> None:
    config = OptimConfig(lr=8.0, warmup_steps=4)
    assert rates(config, None, [1, 2, 3, 4, 5, 1000]) == [2.0, 4.0, 6.0, 8.0, 8.0, 8.0]


def test_linear_decay_reaches_its_fraction_at_the_end_and_stays() -> None:
    config = OptimConfig(lr=10.0, warmup_steps=2, schedule=ScheduleKind.LINEAR, final_lr_fraction=0.2)
    assert rates(config, 10, [2, 6, 10, 11]) == pytest.approx([10.0, 6.0, 2.0, 2.0])


def test_cosine_decay_is_half_way_in_the_middle() -> None:
    config = OptimConfig(lr=10.0, schedule=ScheduleKind.COSINE, final_lr_fraction=0.0)
    assert rates(config, 8, [2, 4, 6, 8, 9]) == pytest.approx([8.535533905932738, 5.0, 1.4644660940672627, 0.0, 0.0])


def test_a_schedule_that_is_all_warm_up_divides_by_nothing() -> None:
    config = OptimConfig(lr=4.0, warmup_steps=4, schedule=ScheduleKind.COSINE)
    assert rates(config, 4, [4, 5]) == pytest.approx([4.0, 0.4])


def test_matrices_decay_and_norms_and_biases_do_not() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3))
    optimizer = build_optimizer(model, OptimConfig(weight_decay=0.5))
    decays = {weight: group["weight_decay"] for group in optimizer.param_groups for weight in group["params"]}
    assert {name: decays[weight] for name, weight in model.named_parameters()} == {
        "0.weight": 0.5,
        "0.bias": 0.0,
        "1.weight": 0.0,
        "1.bias": 0.0,
    }
    set_learning_rate(optimizer, 0.125)
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.125]
