"""The loss on a held-out store: one mean over all its targets, on whatever number of ranks.

    held-out store ──rounds, shared out among the ranks──> forward ──sums──> all-reduce ──> mean

What a micro-batch holds does not depend on the ranks, so neither does its loss. It is summed up in float64.
Nothing is left behind: no gradient, no random number drawn, no weight gathered.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import torch
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel

from dataserver.eval_spec import EvalSpec
from trainer.agreement import agreed
from trainer.config import TrainerConfig
from trainer.feed import Feed
from trainer.launch import World
from trainer.metrics import EvalFigures
from trainer.model import micro_batch_loss_sum, pack
from trainer.parallel import sum_over_ranks


def eval_spec(config: TrainerConfig, vocab_size: int) -> EvalSpec | None:
    """What evaluations of a model of that vocabulary read, if there are any."""
    if config.eval is None:
        return None
    return EvalSpec(
        store=config.eval.store,
        max_length=config.run.order.max_length,
        long_rows=config.run.order.long_rows,
        micro_batch_tokens=config.run.batch.micro_batch_tokens,
        alignment=config.run.batch.alignment,
        pad_to=config.run.batch.pad_to,
        max_samples=config.eval.max_samples,
        vocab_size=vocab_size,
    )


def evaluate(
    model: PreTrainedModel, feed: Feed, spec: EvalSpec, world: World, *, attempt: int, step: int
) -> EvalFigures:
    """Measure with all ranks; returns the same figures on each. `attempt` and `step` say which weights these are."""
    begin = time.monotonic()
    loss_sum = torch.zeros((), dtype=torch.float64, device=world.device)
    targets = samples = 0
    source = feed.held_out(spec, dp_rank=world.rank, dp_world_size=world.size)
    with closing(source), _inference(model):
        for part in agreed(source, world):
            for batch in part:
                loss_sum += micro_batch_loss_sum(model, pack(batch, world.device))
                targets += batch.target_count
                samples += len(batch.lengths)
    loss, targets_of_all, samples_of_all = sum_over_ranks([float(loss_sum), targets, samples])
    return EvalFigures(
        attempt=attempt,
        step=step,
        eval_loss=loss / max(1.0, targets_of_all),
        eval_targets=int(targets_of_all),
        eval_samples=int(samples_of_all),
        eval_s=time.monotonic() - begin,
    )


def check_held_out(feed: Feed, spec: EvalSpec) -> None:
    """Read a little of the held-out store; raises what it is refused with, now and not after hours of training."""
    with closing(feed.held_out(spec, dp_rank=0, dp_world_size=1)) as source:
        next(iter(source), None)


@contextmanager
def _inference(model: PreTrainedModel) -> Iterator[None]:
    """Without gradients or dropout, and with the model as it was afterwards."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                # FSDP keeps the outermost weights gathered for a backward, which does not come.
                module.reshard()
