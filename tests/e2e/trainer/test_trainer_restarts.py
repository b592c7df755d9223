"""torchrun starts ranks again that were killed, and they meet."""

import subprocess
import sys
from pathlib import Path

import pytest

RANK = """
import os, signal
import torch.distributed as dist
from trainer.config import DeviceKind
from trainer.launch import join_world, start_collectives
world = join_world(DeviceKind.CPU, os.environ)
start_collectives(world, 60)
dist.barrier()
if world.restarts < 2 and world.is_first:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
os.write(1, f"rank {world.rank} met all after {world.restarts} restarts\\n".encode())
os._exit(0)
"""


@pytest.mark.slow
def test_ranks_that_torchrun_starts_again_meet_and_do_not_look_for_the_dead(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "2"]
    ended = subprocess.run(
        [*command, "--nproc-per-node", "2", str(script)], capture_output=True, text=True, timeout=280, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [f"rank {rank} met all after 2 restarts" for rank in (0, 1)]
