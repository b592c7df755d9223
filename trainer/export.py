"""A checkpoint as a Hugging Face directory: config.json, safetensors, and the tokenizer if there was one.

The weights are written in the type of the computation (bf16 for a run that trained in bf16),
by one process that needs no other ranks and no GPU. `exported_from.json` beside them names the
checkpoint, so that a job that is started again knows its own export.
"""

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from transformers.utils.logging import disable_progress_bar

from trainer.checkpoint import discard, read_checkpoint
from trainer.config import ModelConfig, Precision
from trainer.config_file import parse_config
from trainer.digests import damage, damaged
from trainer.errors import CheckpointError
from trainer.model import build_model, model_config

TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)
"""What goes with a model beside its weights, by the names that Hugging Face gives."""

ORIGIN_FILE: Final = "exported_from.json"


def export_checkpoint(checkpoint: Path, out: Path) -> None:
    """Write the model of `checkpoint` to the directory `out`: new, empty, or an older export of the same run.

    Does nothing when `out` holds this checkpoint already. Raises `CheckpointError`.
    """
    out = out.resolve()
    complete = read_checkpoint(checkpoint)
    record = complete.record
    check_export_target(out, record.run_uid)
    origin = {"run_uid": record.run_uid, "checkpoint": record.name}
    if _origin(out) == origin:
        return
    if found := damaged(checkpoint, complete.digests, range(len(complete.digests))):
        raise CheckpointError(damage(checkpoint, found[0]))
    config = parse_config(record.config, str(checkpoint)).model
    model = build_model(config, model_config(config))
    state = {"model": model.state_dict()}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*assuming the intent is to load in a single process")
            load(state, checkpoint_id=checkpoint, no_dist=True)
    except (OSError, CheckpointException) as error:
        raise CheckpointError(f"cannot read the checkpoint {checkpoint}: {error}") from error
    model.load_state_dict(state["model"])
    nn.Module.to(model, torch.bfloat16 if config.dtype is Precision.BF16 else torch.float32)
    disable_progress_bar()
    with _written_beside(out) as temporary:
        model.save_pretrained(temporary)
        _copy_tokenizer(config, temporary)
        (temporary / ORIGIN_FILE).write_text(json.dumps(origin) + "\n")
        discard(out)
        temporary.rename(out)


def check_export_target(out: Path, run_uid: str) -> None:
    """Raise `CheckpointError` when `out` holds something else than an export of this run, or cannot be written."""
    with _written_beside(out.resolve()) as temporary:
        temporary.rmdir()
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if _origin(out).get("run_uid") != run_uid:
        raise CheckpointError(f"{out} holds something else than an export of this run: export into a new directory")


@contextmanager
def _written_beside(out: Path) -> Iterator[Path]:
    """A directory to be renamed to `out`, empty at first; raises `CheckpointError` for what cannot be written."""
    temporary = out.with_name(f".{out.name}.tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"the export {out} cannot be written: {error}; make room, or name another place"
        ) from error


def _origin(out: Path) -> dict[str, str]:
    """Which checkpoint an export was made of; empty when it is none."""
    try:
        return dict(json.loads((out / ORIGIN_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def _copy_tokenizer(config: ModelConfig, out: Path) -> None:
    source = None if config.path is None else Path(config.path)
    if source is None or not source.is_dir():
        return
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)
