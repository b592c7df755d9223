"""A Hugging Face `Trainer` that is fed by a data server, and resumes exactly.

    dataserver serve --store chat=PATH &
    python docs/examples/hf_trainer.py --data-endpoint 127.0.0.1:50051 --out OUT --steps 20
    python docs/examples/hf_trainer.py --data-endpoint 127.0.0.1:50051 --out OUT --steps 40   # goes on at 21

One item of the data set is one optimizer step, however many micro-batches it takes, so the
Trainer's own gradient accumulation stays at 1.
"""

# ruff: noqa: ANN401, ARG002 - signatures are the Trainer's

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from dataserver.run_spec import BatchSpec, OrderSpec, Source
from trainer.config import DataConfig, DeviceKind, RunConfig
from trainer.data import Endpoint, ServerFeed
from trainer.dataset import StepDataset, StepItem
from trainer.launch import join_world
from trainer.loss import loss_share
from trainer.model import micro_batch_loss_sum

STATE_FILE = "data_state.json"


class StepTrainer(Trainer):
    """Trains on whole steps."""

    def get_train_dataloader(self) -> DataLoader[StepItem]:
        """The data set as it is: it knows its rank, so accelerate must not shard it again."""
        return DataLoader(self.train_dataset, batch_size=None)

    def training_step(self, model: Any, inputs: StepItem, num_items_in_batch: Any = None) -> torch.Tensor:
        """Accumulate the gradient of the step's mean loss over all its micro-batches."""
        model.train()
        loss = torch.zeros((), device=self.args.device)
        for packed in inputs["micro_batches"]:
            share = loss_share(micro_batch_loss_sum(model, packed), inputs["weight_sum"])
            # DistributedDataParallel divides by the number of ranks; the share is of all ranks' targets already.
            self.accelerator.backward(share * self.accelerator.num_processes)
            loss += share.detach()
        return loss


class KeepPosition(TrainerCallback):
    """Puts the data's position into every checkpoint."""

    def __init__(self, dataset: StepDataset) -> None:
        self.dataset = dataset

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        """Acknowledge: the step is in the weights."""
        self.dataset.ack()

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the position beside the weights, and tell the data server."""
        if state.is_world_process_zero:
            checkpoint = Path(args.output_dir).absolute() / f"checkpoint-{state.global_step}"
            (checkpoint / STATE_FILE).write_text(json.dumps(self.dataset.state_dict()))
            self.dataset.commit(checkpoint.as_uri())


def main(words: Sequence[str] | None = None) -> Trainer:
    """Train to `--steps`, from the newest checkpoint in `--out` if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-endpoint", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--store", default="chat")
    parser.add_argument("--run", default="hf-trainer")
    parser.add_argument("--vocab-size", type=int, default=512)
    options = parser.parse_args(words)

    run = RunConfig(
        name=options.run,
        order=OrderSpec(sources=(Source(store=options.store),), max_length=256),
        batch=BatchSpec(step_tokens=2048, micro_batch_tokens=1024, max_steps=options.steps),
    )
    config = AutoConfig.for_model(
        "qwen3", vocab_size=options.vocab_size, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    feed = ServerFeed(Endpoint(addresses=options.data_endpoint, config=DataConfig()), run)
    world = join_world(DeviceKind.AUTO, os.environ)
    dataset = StepDataset(feed, run=run.name, vocab_size=options.vocab_size, world=world)
    newest = get_last_checkpoint(options.out) if Path(options.out).is_dir() else None
    if newest is not None:
        dataset.load_state_dict(json.loads((Path(newest) / STATE_FILE).read_text()))
    trainer = StepTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=options.out, max_steps=options.steps, save_steps=10, logging_steps=1, learning_rate=1e-3,
            lr_scheduler_type="constant", ignore_data_skip=True, report_to=[], disable_tqdm=True,
        ),
        train_dataset=dataset,
        callbacks=[KeepPosition(dataset)],
    )  # fmt: skip
    try:
        trainer.train(resume_from_checkpoint=newest)
    finally:
        dataset.close()
        feed.close()
    return trainer


if __name__ == "__main__":
    main()
