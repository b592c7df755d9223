"""Nothing that a job started outlives it, its own parent, or the launcher, wherever it hid."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from launchlab.launch import Launch, act, job, kill, wait_gone

HIDDEN = 3
"""Pids that an actor with hidden descendants says."""


def test_a_launcher_that_is_killed_leaves_nothing_behind(tmp_path: Path):
    commands = {"server": act("stubborn"), "trainer": act("parent", "stubborn"), "engine-0": act("parent")}
    with Launch(job(tmp_path, **commands)) as launch:
        launch.pid("server")
        launch.pid("trainer", life=HIDDEN)
        launch.pid("engine-0", life=HIDDEN)
        wardens = launch.wardens
        assert len(wardens) == 3
        launch.signal(signal.SIGKILL)
        launch.end()
        wait_gone([*wardens, *(pid for pids in launch.pids.values() for pid in pids)])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR1])
def test_a_process_that_ends_takes_its_hidden_descendants_with_it(tmp_path: Path, number: signal.Signals):
    with Launch(job(tmp_path, trainer=act(), **{"engine-0": act("parent")})) as launch:
        launch.pid("engine-0", life=HIDDEN)
        hidden = launch.pids["engine-0"][:HIDDEN]
        processes = {psutil.Process(pid).name(): pid for pid in hidden}
        launch.pid("trainer")
        kill(next(pid for name, pid in processes.items() if name.startswith("python")), number)
        launch.until("engine-0 ended with code")
        wait_gone(hidden)
        assert psutil.pid_exists(launch.pid("trainer"))


def test_a_process_whose_warden_is_killed_ends_with_it_and_is_restarted(tmp_path: Path):
    with Launch(job(tmp_path, trainer=act(), server=act("stubborn"))) as launch:
        first = launch.pid("server")
        kill(psutil.Process(first).ppid())
        wait_gone([first])
        assert launch.pid("server", life=2) != first


def test_processes_are_in_sessions_and_groups_of_their_own(tmp_path: Path):
    with Launch(job(tmp_path, trainer=act(), server=act())) as launch:
        launch.pid("trainer")
        launch.pid("server")
        groups = {_ids(pid) for pids in launch.pids.values() for pid in pids} | {_ids(pid) for pid in launch.wardens}
        assert len({group for group, _ in groups}) == 4
        assert len({session for _, session in groups}) == 2


def _ids(pid: int) -> tuple[int, int]:
    return os.getpgid(pid), os.getsid(pid)


def test_the_wardens_use_of_the_interpreter_is_small(tmp_path: Path):
    with Launch(job(tmp_path, trainer=act())) as launch:
        launch.pid("trainer")
        assert psutil.Process(launch.wardens[0]).memory_info().rss < 40e6
        assert psutil.Process(launch.wardens[0]).exe() == str(Path(sys.executable).resolve())
