"""A training job, from its beginning to its end.

    the stores are rendered (every rank waits) -> a live attempt has ended, a checkpoint is chosen (rank 0)
    -> build the model -> begin an attempt (rank 0) -> open a stream per rank -> the loop, until the run ends
    -> export (rank 0)

What it is made of is told in the modules that it names.
"""

import logging
from pathlib import Path

from torch.optim import AdamW
from transformers import PreTrainedModel

from trainer.agreement import told_by_first
from trainer.checkpoint import Checkpoint, Checkpoints, Resume
from trainer.config import TrainerConfig
from trainer.export import export_checkpoint
from trainer.feed import Feed
from trainer.launch import World
from trainer.loop import Job
from trainer.metrics import Metrics, open_metrics
from trainer.model import empty_model, full_weights, model_config
from trainer.optim import build_optimizer
from trainer.parallel import load_weights, shard
from trainer.retention import Retention
from trainer.stamps import stamps_of
from trainer.start import Start, begin_attempt, choose_start
from trainer.state import load_checkpoint

log = logging.getLogger(__name__)


def train(config: TrainerConfig, world: World, feed: Feed, *, resume: Resume = "auto", take_over: bool = False) -> None:
    """Train until the run ends. Every rank calls this; the process group stands already."""
    checkpoints = Checkpoints(config.checkpoint.dir)
    with _metrics(config, world) as metrics:
        feed.await_stores(_stores(config))
        start = told_by_first(world, lambda: choose_start(config, feed, checkpoints, resume, take_over=take_over))
        model, optimizer = build(config, world, start.checkpoint)
        # The attempt begins when the model stands, so that its lease is not spent on loading weights.
        attempt = told_by_first(world, lambda: begin_attempt(config, world, feed, start, take_over=take_over))
        retention = _retention(config, checkpoints, start.run_uid)
        if world.is_first:
            retention.sweep(attempt.number)
        stamps = stamps_of(config, world, model, attempt, feed.report)
        stream = feed.open(
            attempt=attempt,
            world_rank=world.rank,
            dp_rank=world.rank,
            next_step=start.step + 1,
            takes_offers=config.weights is not None,
        )
        job = Job(
            config=config,
            world=world,
            feed=feed,
            checkpoints=checkpoints,
            retention=retention,
            model=model,
            optimizer=optimizer,
            run_uid=start.run_uid,
            attempt=attempt,
            held_out=start.held_out,
            stamps=stamps,
        )
        try:
            newest = job.run(stream, metrics)
        finally:
            stream.close()
            stamps.close()
    if world.is_first:
        _finish(config, start, newest)


def build(config: TrainerConfig, world: World, checkpoint: Checkpoint | None) -> tuple[PreTrainedModel, AdamW]:
    """The sharded model and its optimizer, in the state of `checkpoint`, or in that before the first step."""
    hf_config = model_config(config.model)
    model = empty_model(config.model, hf_config)
    shard(model, world, dtype=config.model.dtype, replicas=config.parallel.replicas)
    optimizer = build_optimizer(model, config.optim)
    if checkpoint is not None:
        load_checkpoint(checkpoint, model, optimizer, world)
    else:
        load_weights(model, full_weights(config.model, hf_config) if world.is_first else {}, world)
    return model, optimizer


def _stores(config: TrainerConfig) -> set[str]:
    """The stores that the job reads."""
    trained = {source.store for source in config.run.order.sources}
    return trained if config.eval is None else trained | {config.eval.store}


def _retention(config: TrainerConfig, checkpoints: Checkpoints, run_uid: str) -> Retention:
    rules = config.checkpoint
    return Retention(checkpoints, run_uid, keep_last=rules.keep_last, keep_every=rules.keep_every)


def _finish(config: TrainerConfig, start: Start, newest: Path | None) -> None:
    """Say how the run ended, and export the newest checkpoint; `newest` is None when no step was left to take."""
    if newest is not None:
        log.info("run %s ended; newest checkpoint: %s", config.run.name, newest)
    else:
        log.info("run %s ended at step %d; nothing left to do", config.run.name, start.step)
        newest = None if start.checkpoint is None else start.checkpoint.path
    if newest is not None and config.checkpoint.export_dir is not None:
        export_checkpoint(newest, config.checkpoint.export_dir)
        log.info("exported to %s", config.checkpoint.export_dir)


def _metrics(config: TrainerConfig, world: World) -> Metrics:
    if not world.is_first:
        return Metrics([])
    return open_metrics(
        config.metrics,
        run=config.run.name,
        last_step=config.run.batch.max_steps,
        resolved=config.model_dump(mode="json"),
    )
