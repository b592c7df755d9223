"""Weights by broadcast in a gloo group: rank 0 is the trainer, the others are the engines' workers.

The trainer listens at `rendezvous`; a group is made for one transfer and no other, under its id. Nothing
that arrives is unpickled: a message is the bytes of its weights, and both sides know how many.
"""

import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from dataserver.weight_buckets import TensorSpec, pack
from orchestrator.engines.interface import Transfer
from orchestrator.receivers.bucket import Bucket, Deadline, ReceiveError

TRAINER_RANK = 0

# Half of what is used of it is missing in its stubs.
dist: Any = torch.distributed


def receive_gloo(transfer: Transfer, rank: int, deadline: Deadline) -> Iterator[Bucket]:
    """The buckets, in order, as the group's `rank`; raises `ReceiveError`."""
    awaited = f"the trainer at {transfer.rendezvous}"
    try:
        group = _join(transfer, rank, deadline.left_s(awaited))
        for tensors in pack(transfer.tensors, transfer.bucket_bytes):
            message = torch.empty(sum(tensor.size for tensor in tensors), dtype=torch.uint8)
            left = timedelta(seconds=deadline.left_s(tensors[0].name))
            group.broadcast(message, TRAINER_RANK, left).wait(left)
            yield _split(message, tensors)
    except RuntimeError as error:
        # torch's fault of a lost or silent peer.
        raise ReceiveError(f"{awaited} was lost, or another member of the group: {error}") from error


def _join(transfer: Transfer, rank: int, limit_s: float) -> Any:  # noqa: ANN401
    host, _, port = transfer.rendezvous.rpartition(":")
    limit = timedelta(seconds=limit_s)
    store = dist.TCPStore(host.strip("[]"), int(port), is_master=False, timeout=limit, wait_for_workers=False)
    options = dist.ProcessGroupGloo._Options()
    options._timeout = limit
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=_own_address(host.strip("[]"), int(port)))]
    return dist.ProcessGroupGloo(dist.PrefixStore(transfer.sync_id, store), rank, transfer.group_size, options)


def _own_address(host: str, port: int) -> str:
    """The address by which this machine reaches `host`: a host's name may stand for another network, or for none."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # sends nothing: a datagram socket only looks up its route
        return str(probe.getsockname()[0])


def _split(message: torch.Tensor, tensors: list[TensorSpec]) -> Bucket:
    parts = torch.split(message, [tensor.size for tensor in tensors])
    return [(tensor, part.numpy().data) for tensor, part in zip(tensors, parts, strict=True)]
