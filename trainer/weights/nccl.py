"""Weights by broadcasts from rank 0's GPU to those of the engines' workers, into vLLM's own NCCL engine.

    rank 0   vLLM's trainer_init: a store at HOST:PORT, a communicator of rank 0 and the workers 1 … n
             each weight: one broadcast from rank 0, as vLLM's engine expects with packed = false

The communicator is vLLM's own (docs/decisions/0010), so this is the one place of the trainer that
imports vLLM, and only when it is configured. Not verified on GPUs yet.
"""

import socket
from importlib import import_module
from typing import Any

import torch

from dataserver.errors import InvalidConfigError
from dataserver.listening import join_address
from trainer.launch import World
from trainer.weights.gather import Bucket
from trainer.weights.sync import Meeting, TransferError
from trainer.weights_config import WeightsConfig


class NcclTransport:
    """One sync's communicator. Raises `InvalidConfigError` where vLLM is missing."""

    def __init__(self, world: World, config: WeightsConfig) -> None:
        self._world = world
        self._config = config
        self._trainer_init = vllm_trainer_init() if world.is_first else None
        self._reserved: socket.socket | None = None
        self._group: Any = None

    @property
    def device(self) -> torch.device:
        """NCCL sends from the GPU's memory."""
        return self._world.device

    def carries(self, bucket: int) -> bool:  # noqa: ARG002 - it carries them all
        """Rank 0 sends everything."""
        return self._world.is_first

    def meet(self) -> Meeting:
        """Reserve a port: vLLM listens on it once the group's size is known."""
        host = self._config.called_host
        self._reserved = socket.socket(socket.AF_INET6 if ":" in self._config.listen_host else socket.AF_INET)
        # vLLM binds the same port with this option: both may have it, as only one listens.
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind((self._config.listen_host, 0))
        return Meeting(rendezvous=join_address(host, self._reserved.getsockname()[1]))

    def join(self, group_size: int, deadline_s: float) -> None:  # noqa: ARG002 - vLLM's rendezvous has its own
        """Form the communicator with the engines' workers."""
        if self._reserved is None or self._trainer_init is None:
            raise TransferError("a group is hosted by rank 0 alone")
        if self._world.device.type == "cuda":
            # The current device is a thread's own.
            torch.cuda.set_device(self._world.device)
        where = {
            "master_address": self._config.called_host,
            "master_port": self._reserved.getsockname()[1],
            "world_size": group_size,
        }
        self._group = self._trainer_init(where)

    def send(self, bucket: Bucket) -> None:
        """Broadcast the bucket's weights, one by one; returns when they have been sent."""
        begin = 0
        for spec in bucket.specs:
            weight = bucket.data[begin : begin + spec.size].view(getattr(torch, spec.dtype))
            self._group.broadcast(weight, src=0)
            begin += spec.size
        if bucket.data.is_cuda:
            torch.cuda.current_stream().synchronize()

    def complete(self, checksum: str) -> None:
        """Nothing: the engines count weights."""

    def leave(self) -> None:
        """Abort the communicator: a broadcast that nobody receives ends with it."""
        if self._group is not None:
            self._group.destroy()
        if self._reserved is not None:
            self._reserved.close()
        self._group = self._reserved = None


def vllm_trainer_init() -> Any:  # noqa: ANN401 - vLLM's function: where to meet -> communicator
    """VLLM's function that joins its engines; raises `InvalidConfigError` where vLLM is missing or another one."""
    try:
        return import_module("vllm.distributed.weight_transfer.nccl_common").trainer_init
    except (ImportError, AttributeError) as error:
        raise InvalidConfigError(
            f"weights.transport = 'nccl' sends with vLLM's own NCCL engine, which cannot be imported here ({error}): "
            "install the engines' version of vLLM beside the trainer, or use another transport"
        ) from error
