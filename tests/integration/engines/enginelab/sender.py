"""A trainer's side of a transfer, as small as it can be: weights of numpy arrays by files or by gloo."""

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import numpy as np
import torch
import torch.distributed
from safetensors.torch import save_file

from dataserver.weight_buckets import TensorSpec, WeightsChecksum, pack
from orchestrator.engines.interface import Transfer, Transport

Weights = Mapping[str, torch.Tensor]

dist = torch.distributed


def specs_of(weights: Weights) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=name, dtype=str(value.dtype).removeprefix("torch."), shape=tuple(value.shape))
        for name, value in weights.items()
    )


def data_of(value: torch.Tensor) -> np.ndarray:
    return value.contiguous().view(torch.uint8).reshape(-1).numpy()


def checksum_of(weights: Weights) -> str:
    checksum = WeightsChecksum()
    for value in weights.values():
        checksum.add(data_of(value).data)
    return checksum.hexdigest()


def file_transfer(weights: Weights, directory: Path, *, bucket_bytes: int = 4096, deadline_s: float = 20) -> Transfer:
    return Transfer(
        sync_id=uuid4().hex,
        transport=Transport.FILESYSTEM,
        tensors=specs_of(weights),
        bucket_bytes=bucket_bytes,
        deadline_s=deadline_s,
        directory=str(directory),
    )


def write_files(weights: Weights, transfer: Transfer, *, stop_after: int | None = None) -> None:
    """Whole buckets under temporary names first, the marker last; `stop_after` buckets it dies."""
    directory = Path(transfer.directory)
    directory.mkdir(parents=True, exist_ok=True)
    for number, tensors in enumerate(pack(transfer.tensors, transfer.bucket_bytes)):
        if number == stop_after:
            return
        path = directory / f"{number:05}.safetensors"
        save_file({tensor.name: weights[tensor.name].contiguous() for tensor in tensors}, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    (directory / "weights.json").write_text(json.dumps({"sync_id": transfer.sync_id}))


class GlooSender:
    """Rank 0 of a group of `workers` more; `send` blocks in the collective."""

    def __init__(self, weights: Weights, workers: int, *, bucket_bytes: int = 4096, deadline_s: float = 20) -> None:
        self._weights = weights
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.transfer = Transfer(
            sync_id=uuid4().hex,
            transport=Transport.GLOO,
            tensors=specs_of(weights),
            bucket_bytes=bucket_bytes,
            deadline_s=deadline_s,
            rendezvous=f"127.0.0.1:{self._store.port}",
            group_size=1 + workers,
            first_rank=1,
        )

    def for_engine(self, rank: int) -> Transfer:
        """The transfer as the engine sees it whose worker is `rank`."""
        return replace(self.transfer, first_rank=rank)

    def send(self, *, stop_after: int | None = None) -> None:
        size, limit = self.transfer.group_size, timedelta(seconds=self.transfer.deadline_s)
        group = dist.ProcessGroupGloo(dist.PrefixStore(self.transfer.sync_id, self._store), 0, size, limit)
        for number, tensors in enumerate(pack(self.transfer.tensors, self.transfer.bucket_bytes)):
            if number == stop_after:
                return
            message = torch.from_numpy(np.concatenate([data_of(self._weights[tensor.name]) for tensor in tensors]))
            assert len(message) == sum(tensor.size for tensor in tensors)
            group.broadcast(message, 0).wait()

    def start(self, *, stop_after: int | None = None) -> threading.Thread:
        thread = threading.Thread(target=self.send, kwargs={"stop_after": stop_after})
        thread.start()
        return thread
