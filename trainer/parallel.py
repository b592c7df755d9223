"""FSDP2: every block's weights, gradients and optimizer state are sharded over the ranks.

    gather a block's weights -> forward -> free      gather -> backward -> reduce-scatter gradients

One code for gloo on CPUs and NCCL on GPUs, for one rank and for many. FSDP divides gradients by
the number of ranks; the loss is divided by the targets of all ranks already, so here they are
summed.
"""

from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, ValueType, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_norm_, get_total_norm
from transformers import PretrainedConfig, PreTrainedModel

from dataserver.errors import InvalidConfigError
from trainer.config import Precision
from trainer.launch import World
from trainer.model import blocks


def shard(model: PreTrainedModel, world: World, *, dtype: Precision, replicas: int) -> None:
    """Shard an empty model in place and give it (uninitialised) storage on the device.

    Weights are float32. With bf16 they are gathered and multiplied as bfloat16; gradients are
    reduced in float32.
    """
    mesh = _mesh(world, replicas)
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if dtype is Precision.BF16 else None, reduce_dtype=torch.float32
    )
    for block in blocks(model):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    cast("nn.Module", model).to_empty(device=world.device)
    model.tie_weights()
    _restore_buffers(model)


def load_weights(model: PreTrainedModel, weights: dict[str, ValueType], world: World) -> None:
    """Give every rank its shard of what rank 0 holds whole; the other ranks pass nothing."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=world.size > 1)
    set_model_state_dict(model, weights, options=options)


def reduce_gradients(model: PreTrainedModel, *, now: bool) -> None:
    """Say whether the next backward reduces gradients over the ranks, or adds to local ones.

    Reducing in the last round of a step alone spares traffic; until then a rank holds the
    unsharded gradients of its rounds, 4 bytes a weight.
    """
    cast("FSDPModule", model).set_requires_gradient_sync(now)
    cast("FSDPModule", model).set_is_last_backward(now)


def clip_gradients(model: nn.Module, longest: float | None) -> float:
    """Scale gradients down to the norm `longest`; return the norm over all ranks before that."""
    if longest is not None:
        norm = clip_grad_norm_(model.parameters(), longest)
    else:
        norm = get_total_norm([weight.grad for weight in model.parameters() if weight.grad is not None])
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def sum_over_ranks(values: list[float]) -> list[float]:
    """Add up, in float64."""
    return _reduced(values, dist.ReduceOp.SUM)


def max_over_ranks(value: float) -> float:
    """The highest."""
    return _reduced([value], dist.ReduceOp.MAX)[0]


def _mesh(world: World, replicas: int) -> DeviceMesh:
    if world.size % replicas:
        raise InvalidConfigError(f"parallel.replicas = {replicas} does not divide the {world.size} ranks")
    if replicas == 1:
        return init_device_mesh(world.device.type, (world.size,), mesh_dim_names=("shard",))
    shape = (replicas, world.size // replicas)
    return init_device_mesh(world.device.type, shape, mesh_dim_names=("replicate", "shard"))


def _restore_buffers(model: PreTrainedModel) -> None:
    """Recompute buffers that no state dict holds: the rotary frequencies."""
    decoder = model.get_decoder()
    config: PretrainedConfig = model.config
    device = next(iter(decoder.rotary_emb.buffers())).device
    decoder.rotary_emb = type(decoder.rotary_emb)(config=config).to(device)


def _reduced(values: list[float], how: dist.ReduceOp.RedOpType) -> list[float]:
    reduced = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(reduced, how)
    return reduced.tolist()
