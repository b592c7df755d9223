"""Weights by broadcasts from rank 0 to the engines' workers, over TCP.

    rank 0   TCPStore at HOST:PORT, a fresh one for each sync
             group "SYNC_ID" of rank 0 and the workers 1 … n, with gloo
             each bucket: one broadcast of uint8, from group rank 0

Nothing is pickled: workers know names, types and shapes from the orchestrator, and what travels is
bytes. `torch.distributed.init_process_group` is the trainer's own group, and stays out of this.
"""

import socket
from datetime import timedelta
from typing import Any, Final

import torch
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed import ProcessGroupGloo

from dataserver.listening import join_address
from trainer.launch import World
from trainer.weights.gather import Bucket
from trainer.weights.sync import Meeting, Sync, TransferError
from trainer.weights_config import WeightsConfig

# Its options alone say on which address gloo listens; torch's types do not know them.
GLOO: Final[Any] = ProcessGroupGloo


class GlooTransport:
    """One sync's group."""

    def __init__(self, sync: Sync, world: World, config: WeightsConfig) -> None:
        self._sync = sync
        self._world = world
        self._config = config
        self._store: TCPStore | None = None
        self._group: Any = None

    @property
    def device(self) -> torch.device:
        """Gloo sends from the CPU's memory."""
        return torch.device("cpu")

    def carries(self, bucket: int) -> bool:  # noqa: ARG002 - it carries them all
        """Rank 0 sends everything."""
        return self._world.is_first

    def meet(self) -> Meeting:
        """Host the store."""
        host = self._config.called_host
        family = socket.AF_INET6 if ":" in self._config.listen_host else socket.AF_INET
        listening = socket.create_server((self._config.listen_host, 0), family=family)
        port = listening.getsockname()[1]
        self._store = TCPStore(
            host, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach(),
            timeout=timedelta(seconds=self._config.prepare_s + self._config.send_s),
        )  # fmt: skip
        return Meeting(rendezvous=join_address(host, port))

    def join(self, group_size: int, deadline_s: float) -> None:
        """Form the group with the engines' workers."""
        if self._store is None:
            raise TransferError("a group is hosted by rank 0 alone")
        options = GLOO._Options()
        options._devices = [GLOO.create_device(hostname=self._config.called_host)]
        options._timeout = timedelta(seconds=deadline_s)
        store = PrefixStore(self._sync.sync_id, self._store)
        store.set_timeout(timedelta(seconds=deadline_s))
        self._group = GLOO(store, 0, group_size, options)

    def send(self, bucket: Bucket) -> None:
        """Broadcast the bucket; returns when its bytes are on their way."""
        # While it waits here the group must not go: its end would wait for the broadcast, and hold every thread up.
        group = self._group
        if group is None:
            raise TransferError("the transfer is over")
        group.broadcast(bucket.data, 0).wait()

    def complete(self, checksum: str) -> None:
        """Nothing: the engines count bytes."""

    def leave(self) -> None:
        """Leave the group and close the store."""
        self._group = self._store = None
