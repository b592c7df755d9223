"""The training loop, on one rank.

    for each step: all ranks agree -> rounds of forward, backward -> clip, update
                   -> where a stamp says so, weights to the engines -> ack -> figures -> checkpoint
                   -> where it is due, the loss on a held-out store

A step's gradient is the sum over all ranks and rounds of each micro-batch's share of one mean
loss, so it does not depend on how the step was packed or on the number of ranks.
"""

import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.optim import AdamW
from transformers import PreTrainedModel

from dataserver.client import AttemptInfo
from dataserver.eval_spec import EvalSpec
from trainer.agreement import agreed
from trainer.checkpoint import Checkpoints, Record
from trainer.config import TrainerConfig
from trainer.errors import NonFiniteError
from trainer.evaluation import evaluate
from trainer.feed import Feed, Step, StepSource
from trainer.launch import World
from trainer.loss import loss_share
from trainer.metrics import Metrics, StepFigures
from trainer.model import micro_batch_loss_sum, pack
from trainer.optim import learning_rate, set_learning_rate
from trainer.parallel import clip_gradients, max_over_ranks, reduce_gradients, sum_over_ranks
from trainer.retention import Retention
from trainer.stamps import Stamps
from trainer.state import save_checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One attempt at training, on one rank."""

    config: TrainerConfig
    world: World
    feed: Feed
    checkpoints: Checkpoints
    retention: Retention
    model: PreTrainedModel
    optimizer: AdamW
    run_uid: str
    attempt: AttemptInfo
    held_out: EvalSpec | None
    stamps: Stamps

    def run(self, stream: StepSource, metrics: Metrics) -> Path | None:
        """Take every step; returns the checkpoint that was written last, on rank 0."""
        self.stamps.begin(stream)
        newest, begin = None, time.monotonic()
        for step in agreed(stream, self.world):
            lr = learning_rate(self.config.optim, step.number, self.config.schedule_steps)
            local = self.forward_backward(step)
            grad_norm = self.update(step, lr)
            self.stamps.step_done(step)
            stream.ack(step)
            step_s = time.monotonic() - begin
            metrics.write(self.figures(step, local, lr=lr, grad_norm=grad_norm, step_s=step_s))
            if self.is_save_due(step):
                newest = self.save(step)
            self.evaluate_if_due(step, metrics)
            self.stamps.write(metrics)
            begin = time.monotonic()
        self.stamps.end(stream)
        self.stamps.write(metrics)
        return newest

    def forward_backward(self, step: Step) -> "LocalSums":
        """Leave the gradient of the step's mean loss, summed over all ranks, in the weights."""
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.world.device)
        empty = padding = 0
        for batch in step:
            is_last_round = batch.round == step.rounds - 1
            reduce_gradients(self.model, now=is_last_round or self.config.parallel.reduce_every_round)
            batch_loss = micro_batch_loss_sum(self.model, pack(batch, self.world.device))
            loss_share(batch_loss, step.weight_sum).backward()
            loss_sum += batch_loss.detach()
            empty += not len(batch.lengths)
            padding += len(batch.tokens) - int(batch.lengths.sum())
        return LocalSums(loss=float(loss_sum), empty=empty, padding=padding, wait_s=step.wait_s)

    def update(self, step: Step, lr: float) -> float:
        """Take the optimizer step; returns the gradient's norm. Raises `NonFiniteError` before any weight changes."""
        grad_norm = clip_gradients(self.model, self.config.optim.clip_norm)
        if not math.isfinite(grad_norm):
            raise NonFiniteError(
                f"step {step.number}: the gradient's norm is {grad_norm}; the weights were not changed. "
                "Resume from a checkpoint with a lower optim.lr, or look at the step's samples"
            )
        set_learning_rate(self.optimizer, lr)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return grad_norm

    def figures(self, step: Step, local: "LocalSums", *, lr: float, grad_norm: float, step_s: float) -> StepFigures:
        """Gather the step's figures from all ranks."""
        loss, empty, padding = sum_over_ranks([local.loss, local.empty, local.padding])
        return StepFigures(
            attempt=self.attempt.number,
            step=step.number,
            epoch=step.end.epoch,
            loss=loss / (step.weight_sum or 1.0),
            lr=lr,
            grad_norm=grad_norm,
            step_s=step_s,
            data_wait_s=max_over_ranks(local.wait_s),
            tokens_per_s=step.token_count / step_s,
            tokens=step.token_count,
            targets=step.target_count,
            samples=step.sample_count,
            rounds=step.rounds,
            empty_micro_batches=int(empty),
            padding=int(padding),
            sync_weights=step.sync_weights,
        )

    def is_save_due(self, step: Step) -> bool:
        """Whether a checkpoint follows this step."""
        every = self.config.checkpoint.every_steps
        return step.last or (every is not None and step.number % every == 0)

    def evaluate_if_due(self, step: Step, metrics: Metrics) -> None:
        """Measure the loss on the held-out store, if there is one and its turn has come."""
        config = self.config.eval
        if config is None or self.held_out is None or not (step.last or step.number % config.every_steps == 0):
            return
        where = {"attempt": self.attempt.number, "step": step.number}
        metrics.write(evaluate(self.model, self.feed, self.held_out, self.world, **where))

    def save(self, step: Step) -> Path | None:
        """Write a checkpoint with all ranks, and tell the ledger; returns its path on rank 0."""
        record = Record(
            run=self.config.run.name,
            run_uid=self.run_uid,
            attempt=self.attempt.number,
            world_size=self.world.size,
            cursor=step.end,
            config=self.config.model_dump(mode="json"),
        )
        path = save_checkpoint(self.checkpoints, record, self.model, self.optimizer, self.world)
        if path is not None and self.feed.commit(attempt=self.attempt, cursor=step.end, uri=path.as_uri()):
            self.retention.prune(self.attempt.number, self.attempt.base.step)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSums:
    """What one rank adds to a step's figures."""

    loss: float
    empty: int
    padding: int
    wait_s: float
