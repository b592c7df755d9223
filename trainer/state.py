"""Weights and optimizer state of all ranks, to and from one directory.

Written sharded, by every rank its own part, and read at any number of ranks
(torch.distributed.checkpoint). AdamW's state and the weights are all there is: learning rate and
data position are functions of the step and the cursor, and nothing draws random numbers.
"""

import logging
import shutil
from collections.abc import Set
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from trainer.agreement import of_all_ranks
from trainer.checkpoint import Checkpoint, Checkpoints, Record
from trainer.digests import damage, damaged, digest_of
from trainer.errors import CheckpointError
from trainer.launch import World
from trainer.parallel import sum_over_ranks

# How names of weights begin in a checkpoint.
_MODEL: Final = "model."

log = logging.getLogger(__name__)


def save_checkpoint(
    checkpoints: Checkpoints, record: Record, model: nn.Module, optimizer: Optimizer, world: World
) -> Path | None:
    """Write a checkpoint with all ranks; rank 0 gets its path once it is complete.

    Raises `CheckpointError`; checkpoints that were complete before stay as they were.
    """
    temporary = checkpoints.temporary(record)
    try:
        if world.is_first:
            checkpoints.begin(record)
        dist.barrier()
        _check_shared(temporary, world)
        # Every rank flushes the files that it writes; a fault on any rank is raised on all.
        save(_state(model, optimizer), checkpoint_id=temporary)
        digests = _digests_of_ranks(temporary, world)
        return checkpoints.commit(temporary, record, digests) if world.is_first else None
    except (OSError, CheckpointException) as error:
        raise CheckpointError(
            f"cannot write the checkpoint of step {record.step} under {checkpoints.directory}, where "
            f"{_free_bytes(checkpoints.directory)} bytes are free: {_cause(error)}; earlier checkpoints are untouched"
        ) from error


def load_checkpoint(checkpoint: Checkpoint, model: nn.Module, optimizer: Optimizer, world: World) -> None:
    """Give model and optimizer the state of a checkpoint, whatever number of ranks wrote it.

    Raises `CheckpointError`, also for the checkpoint of a model that has other weights, and for one that is damaged.
    """
    path = checkpoint.path
    _check_whole(checkpoint, world)
    state = _state(model, optimizer)
    _check_same_model(path, state["model"].keys())
    try:
        load(state, checkpoint_id=path)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    except (OSError, CheckpointException) as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {_cause(error)}") from error
    except RuntimeError as error:
        raise CheckpointError(f"the checkpoint {path} does not fit the model: {error}") from error


def _digests_of_ranks(directory: Path, world: World) -> list[int]:
    """Of what each rank wrote; a collective. Raises `OSError` on all ranks where one cannot read it."""
    mine, fault = 0, None
    try:
        mine = digest_of(directory, world.rank)
    except OSError as error:
        fault = error
    failed = [rank for rank, flag in enumerate(of_all_ranks(int(fault is not None), world)) if flag]
    if failed:
        raise fault or OSError(f"rank {failed[0]} cannot read what it wrote")
    return of_all_ranks(mine, world)


def _check_whole(checkpoint: Checkpoint, world: World) -> None:
    """Raise `CheckpointError` on all ranks where files are not what was written; each rank reads its part of them."""
    if world.is_first:
        log.info("reading the checkpoint %s", checkpoint.path)
    mine = damaged(checkpoint.path, checkpoint.digests, range(world.rank, len(checkpoint.digests), world.size))
    found = [writer for writer in of_all_ranks(mine[0] if mine else -1, world) if writer >= 0]
    if found:
        raise CheckpointError(damage(checkpoint.path, min(found)))


def _check_same_model(path: Path, names: Set[str]) -> None:
    """Loading takes what the model has, and would leave the rest of a larger one behind without a word."""
    try:
        saved = FileSystemReader(path).read_metadata().state_dict_metadata
    except Exception as error:  # a damaged pickle raises anything
        raise CheckpointError(f"cannot read the checkpoint {path}: .metadata: {error}") from error
    there = {name.removeprefix(_MODEL) for name in saved if name.startswith(_MODEL)}
    if other := sorted(there ^ names):
        raise CheckpointError(
            f"the checkpoint {path} is of another model: {len(there - names)} of its weights are not in the model, "
            f"and {len(names - there)} of the model's are not in it, such as {other[0]}; restore the section [model]"
        )


def _state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


def _cause(error: OSError | CheckpointException) -> str:
    """What failed, on which ranks; torch's own text holds whole traces."""
    if isinstance(error, OSError):
        return str(error)
    failures = (f"rank {rank}: {type(fault).__name__}: {fault}" for rank, (fault, _) in error.failures.items())
    return "; ".join(failures)


def _free_bytes(directory: Path) -> str:
    """Told because torch's writer says of a full disk only that it is at another position than it should be."""
    try:
        return f"{shutil.disk_usage(directory).free:,}"
    except OSError:
        return "an unknown number of"


def _check_shared(temporary: Path, world: World) -> None:
    """Raise `CheckpointError` when a rank writes elsewhere than rank 0."""
    seeing = sum_over_ranks([float(temporary.is_dir())])[0]
    if seeing < world.size:
        raise CheckpointError(
            f"only {seeing:.0f} of {world.size} ranks see {temporary}: "
            "checkpoint.dir must lie on a filesystem that all nodes share"
        )
