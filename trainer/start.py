"""What rank 0 settles for all ranks before the first step: which checkpoint, and the attempt."""

import logging
import sys
from dataclasses import dataclass

from transformers import PretrainedConfig

from dataserver.client import AttemptInfo
from dataserver.eval_spec import EvalSpec
from trainer.checkpoint import Checkpoint, Checkpoints, Resume
from trainer.config import TrainerConfig
from trainer.errors import CheckpointError
from trainer.evaluation import check_held_out, eval_spec
from trainer.export import check_export_target
from trainer.feed import Feed
from trainer.launch import World
from trainer.model import empty_model, model_config

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where all ranks start from, as rank 0 chose: a checkpoint, or (None) random or given weights.

    `held_out`: what evaluations read, if there are any.
    """

    run_uid: str
    checkpoint: Checkpoint | None
    held_out: EvalSpec | None

    @property
    def step(self) -> int:
        """Optimizer steps in the weights."""
        return 0 if self.checkpoint is None else self.checkpoint.record.step


def choose_start(
    config: TrainerConfig, feed: Feed, checkpoints: Checkpoints, resume: Resume, *, take_over: bool
) -> Start:
    """Create or find the run, and choose a checkpoint; raises what either refuses."""
    hf_config = model_config(config.model)
    empty_model(config.model, hf_config)  # what cannot be trained leaves no run behind
    _tell_context(hf_config, config.run.order.max_length)
    vocab_size = hf_config.vocab_size
    lineage = feed.create_run(vocab_size, wait_alive=not take_over)
    held_out = eval_spec(config, vocab_size)
    if held_out is not None:
        check_held_out(feed, held_out)
    if config.checkpoint.export_dir is not None:
        # Now, not after days of training.
        check_export_target(config.checkpoint.export_dir, lineage.run_uid)
    checkpoint = checkpoints.choose(resume, lineage)
    log.info("run %s: %s", lineage.run, f"going on from {checkpoint.path}" if checkpoint else "a fresh start")
    return Start(run_uid=lineage.run_uid, checkpoint=checkpoint, held_out=held_out)


def _tell_context(hf_config: PretrainedConfig, max_length: int) -> None:
    """Rotary positions go on beyond the model's context, and are what it was never trained on: no error says so."""
    context = getattr(hf_config, "max_position_embeddings", None)
    if context is not None and max_length > context:
        log.warning(
            "run.order.max_length = %d is above the %d positions of the model (max_position_embeddings): engines may "
            "refuse it, and what it learns of longer samples is its own extension", max_length, context,
        )  # fmt: skip


def begin_attempt(config: TrainerConfig, world: World, feed: Feed, start: Start, *, take_over: bool) -> AttemptInfo:
    """Begin an attempt from the checkpoint's cursor, and keep its configuration."""
    cursor = None if start.checkpoint is None else start.checkpoint.record.cursor
    size = world.size
    attempt = feed.begin(resume=cursor, world_size=size, dp_world_size=size, holder=world.holder, take_over=take_over)
    store_config(config, attempt.number)
    return attempt


def store_config(config: TrainerConfig, attempt: int) -> None:
    """Keep the resolved configuration beside the checkpoints, and print it; raises `CheckpointError`."""
    text = config.model_dump_json(indent=2)
    try:
        config.checkpoint.dir.mkdir(parents=True, exist_ok=True)
        (config.checkpoint.dir / f"config-attempt-{attempt}.json").write_text(text + "\n")
    except OSError as error:
        raise CheckpointError(
            f"checkpoint.dir cannot be written: {error}; make room, or name another directory"
        ) from error
    sys.stdout.write(f"attempt {attempt}, configuration:\n{text}\n")
    sys.stdout.flush()
