"""AdamW, and a learning rate that is a function of the step alone.

The learning rate holds no state: a resume at step N gets what an uninterrupted run got there.
"""

import math

from torch import nn
from torch.optim import AdamW

from trainer.config import OptimConfig, ScheduleKind


def build_optimizer(model: nn.Module, config: OptimConfig) -> AdamW:
    """AdamW over all weights that train; only matrices decay."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW(
        [group for group in groups if group["params"]],
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
    )


def learning_rate(config: OptimConfig, step: int, total_steps: int | None) -> float:
    """Learning rate of optimizer step `step`, counted from 1.

    It rises in a line to `lr` at step `warmup_steps`, and a decay reaches `lr * final_lr_fraction`
    at `total_steps` and stays there.
    """
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    if config.schedule is ScheduleKind.CONSTANT or total_steps is None:
        return config.lr
    done = min(1.0, (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps))
    left = 1.0 - done if config.schedule is ScheduleKind.LINEAR else (1.0 + math.cos(math.pi * done)) / 2
    return config.lr * (config.final_lr_fraction + (1.0 - config.final_lr_fraction) * left)


def set_learning_rate(optimizer: AdamW, lr: float) -> None:
    """Use `lr` for the next step."""
    for group in optimizer.param_groups:
        group["lr"] = lr
