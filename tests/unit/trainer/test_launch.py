"""Who this process is among the ranks, and who launched it."""

import os
import subprocess
import sys

import pytest
import torch

from dataserver.errors import InvalidConfigError
from trainer.config import DeviceKind
from trainer.launch import join_world, launcher_instance


def test_without_torchrun_a_process_is_a_world_of_one() -> None:
    world = join_world(DeviceKind.CPU, {})
    assert (world.rank, world.size, world.under_torchrun, world.is_first) == (0, 1, False, True)
    assert world.holder == launcher_instance(os.getpid())


def test_ranks_of_one_torchrun_have_one_holder_which_is_their_parent() -> None:
    worlds = [join_world(DeviceKind.CPU, {"RANK": rank, "WORLD_SIZE": "4", "LOCAL_RANK": "0"}) for rank in ("0", "3")]
    assert [world.rank for world in worlds] == [0, 3]
    assert {world.holder for world in worlds} == {launcher_instance(os.getppid())}


def test_every_launch_has_a_holder_of_its_own_that_stays_the_same() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert launcher_instance(other.pid) == launcher_instance(other.pid)
        assert launcher_instance(other.pid) != launcher_instance(os.getpid())
        other.communicate(b"\n")


# A rank that does not end with its launcher says so, and ends by itself.
RANK = """if True:
    import signal
    from trainer.config import DeviceKind
    from trainer.launch import end_with_launcher, join_world
    end_with_launcher(join_world(DeviceKind.CPU, {"RANK": "0", "WORLD_SIZE": "1"}))
    print("ready", flush=True)
    signal.sigtimedwait([signal.SIGUSR1], 60)
    print("left behind", flush=True)
"""


def test_a_rank_whose_launcher_is_killed_ends_with_it() -> None:
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {RANK!r}])"
    with subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        # The pipe is the rank's too: it ends when the last that has it does.
        out, _ = process.communicate(timeout=100)
        assert out == b""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="local rank 0 has no device"):
        join_world(DeviceKind.CUDA, {})
