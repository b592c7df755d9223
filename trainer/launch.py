"""Which rank this process is, and who launched it.

The only place that reads the environment: torchrun hands over ranks in variables. Without
torchrun the process is a world of one.
"""

import ctypes
import logging
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore
from torch.distributed.rendezvous import rendezvous

from dataserver.errors import InvalidConfigError
from trainer.config import DeviceKind

PR_SET_PDEATHSIG: Final = 1

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """This process among all ranks. `holder` names the launcher instance.

    `restarts`: how often a launcher that has all ranks on one host started them again; 0 where there are several, as
    each counts its own.
    """

    rank: int
    size: int
    local_rank: int
    device: torch.device
    holder: str
    under_torchrun: bool
    restarts: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this rank speaks for all."""
        return self.rank == 0


def join_world(device: DeviceKind, environment: Mapping[str, str]) -> World:
    """Read torchrun's variables; raises `InvalidConfigError` when `device` is not there."""
    under_torchrun = "RANK" in environment and "WORLD_SIZE" in environment
    local_rank = int(environment.get("LOCAL_RANK", "0")) if under_torchrun else 0
    on_one_host = environment.get("GROUP_WORLD_SIZE") == "1"
    return World(
        rank=int(environment["RANK"]) if under_torchrun else 0,
        size=int(environment["WORLD_SIZE"]) if under_torchrun else 1,
        local_rank=local_rank,
        device=_device(device, local_rank),
        holder=launcher_instance(os.getppid() if under_torchrun else os.getpid()),
        under_torchrun=under_torchrun,
        restarts=int(environment.get("TORCHELASTIC_RESTART_COUNT", "0")) if on_one_host else 0,
    )


def end_with_launcher(world: World) -> None:
    """Have the kernel kill this rank when torchrun is killed (prctl(2)).

    It would train on with nobody to end or restart it, and keep the run from the next launch.
    """
    if world.under_torchrun:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def tell_threads(world: World) -> None:
    """Log how many threads a lone rank computes with: torchrun sets one, torch alone takes every core."""
    if world.device.type == "cpu" and not world.under_torchrun:
        log.info("torch computes with %d threads; OMP_NUM_THREADS sets how many", torch.get_num_threads())


def start_collectives(world: World, timeout_s: float) -> None:
    """Form the process group: gloo for the CPU, and NCCL beside it for GPUs.

    A rank that waits longer than `timeout_s` in a collective fails.
    """
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
    backend = "cpu:gloo,cuda:nccl" if world.device.type == "cuda" else "gloo"
    timeout = timedelta(seconds=timeout_s)
    if world.under_torchrun:
        store, rank, size = next(rendezvous("env://", timeout=timeout))
        # torchrun keeps its store when it starts the ranks again: without a name of their own they may find the
        # addresses of those that are gone.
        named = PrefixStore(f"restart-{world.restarts}", store)
        dist.init_process_group(backend, timeout=timeout, store=named, rank=rank, world_size=size)
    else:
        dist.init_process_group(backend, timeout=timeout, store=HashStore(), rank=0, world_size=1)


def launcher_instance(pid: int) -> str:
    """Name of process `pid` that no other process on any host ever shares: host, pid, start time.

    torchrun restarts its ranks and stays itself, so an attempt that it begins again has the
    same holder; a second torchrun has another. Start time is in clock ticks since boot
    (proc(5), field 22), counted behind the command's closing parenthesis.
    """
    stat = Path(f"/proc/{pid}/stat").read_text()
    start_ticks = stat.rpartition(")")[2].split()[19]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return f"{socket.gethostname()}/{boot}/{pid}/{start_ticks}"


def _device(kind: DeviceKind, local_rank: int) -> torch.device:
    if kind is DeviceKind.AUTO:
        kind = DeviceKind.CUDA if torch.cuda.is_available() else DeviceKind.CPU
    if kind is DeviceKind.CPU:
        return torch.device("cpu")
    if local_rank >= torch.cuda.device_count():
        raise InvalidConfigError(
            f"parallel.device = 'cuda', but local rank {local_rank} has no device: "
            f"this host shows {torch.cuda.device_count()}"
        )
    return torch.device("cuda", local_rank)
