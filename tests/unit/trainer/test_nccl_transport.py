"""What of the NCCL way runs without a GPU: what vLLM is asked for, and what is handed to its communicator."""

import socket
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from dataserver.errors import InvalidConfigError
from dataserver.weight_buckets import TensorSpec
from trainer.launch import World
from trainer.weights.gather import Bucket
from trainer.weights.nccl import NcclTransport
from trainer.weights_config import WeightsConfig

WORLD = World(rank=0, size=1, local_rank=0, device=torch.device("cpu"), holder="test", under_torchrun=False)
CONFIG = WeightsConfig(transport="nccl")
MODULE = "vllm.distributed.weight_transfer.nccl_common"


class Communicator:
    """In the place of vLLM's: notes what it is given, and binds the port as vLLM does."""

    def __init__(self, where: dict[str, Any]) -> None:
        self.where = where
        self.sent: list[tuple[torch.Tensor, int]] = []
        self.destroyed = 0
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((where["master_address"], where["master_port"]))
            listening.listen()

    def broadcast(self, tensor: torch.Tensor, src: int) -> None:
        self.sent.append((tensor.clone(), src))

    def destroy(self) -> None:
        self.destroyed += 1


def test_without_vllm_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(InvalidConfigError, match="install the engines' version of vLLM"):
        NcclTransport(WORLD, CONFIG)


def test_weights_go_one_by_one_in_their_type_from_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Communicator] = []
    module = ModuleType(MODULE)
    module.trainer_init = lambda where: made.append(Communicator(where)) or made[-1]  # type: ignore[attr-defined]
    for name in ("vllm", "vllm.distributed", "vllm.distributed.weight_transfer"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, MODULE, module)
    transport = NcclTransport(WORLD, CONFIG)
    meeting = transport.meet()
    transport.join(3, 10.0)
    [group] = made
    assert meeting.rendezvous == f"127.0.0.1:{group.where['master_port']}"
    assert group.where["world_size"] == 3
    weights = [torch.randn(2, 3), torch.randn(5)]
    transport.send(
        Bucket(
            number=0,
            first=0,
            specs=tuple(TensorSpec(name="w", dtype="float32", shape=tuple(weight.shape)) for weight in weights),
            data=torch.cat([weight.reshape(-1) for weight in weights]).view(torch.uint8),
        )
    )
    assert [src for _, src in group.sent] == [0, 0]
    assert all(torch.equal(sent, weight.reshape(-1)) for (sent, _), weight in zip(group.sent, weights, strict=True))
    transport.leave()
    transport.leave()
    assert group.destroyed == 1
