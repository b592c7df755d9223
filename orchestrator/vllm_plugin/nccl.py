"""Weights by NCCL: vLLM's own engine receives them; what it would load goes through our hands first.

Unverified: nothing here has run on a GPU yet but what needs none.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch
from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer.nccl_engine import (
    NCCLWeightTransferEngine,
    NCCLWeightTransferInitInfo,
    NCCLWeightTransferUpdateInfo,
)

from orchestrator.engines.interface import Transfer
from orchestrator.receivers.bucket import Deadline, ReceiveError

Load = Callable[[list[tuple[str, torch.Tensor]]], None]


class Sink:
    """Stands where vLLM's engine expects a model."""

    def __init__(self, load: Load) -> None:
        self.load_weights = load


def init_info(transfer: Transfer) -> NCCLWeightTransferInitInfo:
    """Where the communicator of a transfer meets. Weights come one by one, as the trainer sends them."""
    host, _, port = transfer.rendezvous.rpartition(":")
    return NCCLWeightTransferInitInfo(
        master_address=host.strip("[]"),
        master_port=int(port),
        rank_offset=transfer.first_rank,
        world_size=transfer.group_size,
        packed=False,
    )


def update_info(transfer: Transfer) -> NCCLWeightTransferUpdateInfo:
    """What comes, in order."""
    return NCCLWeightTransferUpdateInfo(
        names=[tensor.name for tensor in transfer.tensors],
        dtype_names=[tensor.dtype for tensor in transfer.tensors],
        shapes=[list(tensor.shape) for tensor in transfer.tensors],
    )


def receive_nccl(transfer: Transfer, vllm_config: Any, device: torch.device, load: Load, deadline: Deadline) -> None:  # noqa: ANN401
    """Gives every weight to `load`, on the device; raises `ReceiveError`."""
    sink: Any = Sink(load)
    engine = NCCLWeightTransferEngine(WeightTransferConfig(backend="nccl"), vllm_config, device, sink)
    # A broadcast that nobody sends has no deadline of its own: it ends with its communicator.
    timer = threading.Timer(deadline.left_s(transfer.rendezvous), engine.shutdown)
    timer.start()
    try:
        engine.init_transfer_engine(init_info(transfer))
        engine.receive_weights(update_info(transfer))
        torch.cuda.synchronize(device)
    except (RuntimeError, ValueError) as error:
        raise ReceiveError(f"the trainer at {transfer.rendezvous} was lost: {error}") from error
    finally:
        timer.cancel()
        engine.shutdown()
    deadline.left_s("the last weight")
