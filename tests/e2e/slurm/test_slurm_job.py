"""A batch job under a real Slurm of one node ends as its trainer does, and nothing of it stays."""

import os
import re
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from slurmlab.cluster import LIMIT_S, Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[3]
SCRIPT = REPOSITORY / "deploy" / "slurm" / "job.sbatch"
ACTOR = f"{sys.executable} {REPOSITORY / 'tests' / 'e2e' / 'launcher' / 'launchlab' / 'actor.py'}"


@pytest.fixture(autouse=True)
def _launcher_on_path(tmp_path: Path, cluster: Cluster) -> None:
    """The program `launcher` of this tree, whether or not it is installed."""
    program = tmp_path / "launcher"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m deploy.launcher "$@"\n')
    program.chmod(0o755)
    cluster.environment["PATH"] = f"{tmp_path}:{cluster.environment['PATH']}"


def job(directory: Path, trainer: str) -> Path:
    path = directory / "job.toml"
    tables = {"server": ACTOR, "trainer": trainer, "engines.engine-0": f"{ACTOR} parent", "orchestrator": ACTOR}
    text = "".join(f"[{name}]\ncommand = '''{command}'''\n" for name, command in tables.items())
    path.write_text("backoff_s = 0.05\nstop_s = 5\n" + text)
    return path


def pids(log: Path, count: int) -> dict[str, list[int]]:
    """By name, the pids that stand in a job's output, once there are so many."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        text = log.read_text() if log.exists() else ""
        found = re.findall(r"^(\S+) +\| (?:pid|child) (\d+)$", text, re.MULTILINE)
        if len(found) >= count:
            break
        assert time.monotonic() < deadline, text
        time.sleep(0.1)
    named: dict[str, list[int]] = {}
    for name, pid in found:
        named.setdefault(name, []).append(int(pid))
    return named


ALL = 6
"""Pids of a job: four processes and two hidden descendants of the engine."""


def test_a_job_whose_trainer_fails_has_failed_with_its_exit_code(cluster: Cluster, tmp_path: Path):
    number = cluster.submit(SCRIPT, job(tmp_path, ACTOR))
    running = pids(cluster.output(number), ALL)
    os.kill(running["server"][0], signal.SIGKILL)
    os.kill(pids(cluster.output(number), ALL + 1)["trainer"][0], signal.SIGUSR2)
    assert cluster.end(number) == ("FAILED", 7, 0)
    assert "server ended with code 137" in cluster.output(number).read_text()
    assert [pid for each in running.values() for pid in each if psutil.pid_exists(pid)] == []


def test_a_job_whose_trainer_succeeds_is_complete_when_its_orchestrator_has_ended(cluster: Cluster, tmp_path: Path):
    number = cluster.submit(SCRIPT, job(tmp_path, ACTOR))
    running = pids(cluster.output(number), ALL)
    os.kill(running["trainer"][0], signal.SIGUSR1)
    os.kill(running["orchestrator"][0], signal.SIGUSR1)
    assert cluster.end(number) == ("COMPLETED", 0, 0)


def test_a_trainer_that_is_a_step_ends_the_job_too_and_knows_the_node(cluster: Cluster, tmp_path: Path):
    step = "srun --nodes=1 --overlap --kill-on-bad-exit=1 bash -c 'echo on $NODE_0 as $$SLURMD_NODENAME; exit 5'"
    number = cluster.submit(SCRIPT, job(tmp_path, step))
    assert cluster.end(number) == ("FAILED", 5, 0)
    found = re.search(r"^trainer +\| on (\S+) as (\S+)$", cluster.output(number).read_text(), re.MULTILINE)
    assert found
    assert found[1] == found[2]


def test_a_job_that_is_cancelled_leaves_nothing_behind(cluster: Cluster, tmp_path: Path):
    number = cluster.submit(SCRIPT, job(tmp_path, ACTOR))
    running = pids(cluster.output(number), ALL)
    cluster.call("scancel", str(number))
    assert cluster.end(number)[0] == "CANCELLED"
    _, alive = psutil.wait_procs(
        [psutil.Process(p) for each in running.values() for p in each if psutil.pid_exists(p)], LIMIT_S
    )
    assert alive == []
