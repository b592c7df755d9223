"""Each clause of the rule of who ends whom, with real processes and real signals."""

import os
import re
import signal
from pathlib import Path

import pytest
from launchlab.launch import QUICK, Launch, act, job, kill, wait_gone

WHOLE = {"server": act(), "trainer": act(), "orchestrator": act(), "engine-0": act()}
OTHERS = ("server", "engine-0", "orchestrator")


def test_the_trainers_failure_takes_all_down_with_its_exit_code(tmp_path: Path):
    with Launch(job(tmp_path, **WHOLE)) as launch:
        pids = [launch.pid(name) for name in WHOLE]
        kill(launch.pid("trainer"), signal.SIGUSR2)
        assert launch.end() == 7
        assert [launch.said(name)[-1] for name in OTHERS] == ["told to end"] * 3
        wait_gone(pids)


def test_a_trainer_that_is_killed_takes_all_down_with_the_code_that_a_shell_would_give(tmp_path: Path):
    with Launch(job(tmp_path, **WHOLE)) as launch:
        for name in WHOLE:
            launch.pid(name)
        kill(launch.pid("trainer"))
        assert launch.end() == 128 + signal.SIGKILL
        assert [launch.said(name)[-1] for name in OTHERS] == ["told to end"] * 3


def test_after_the_trainers_success_the_orchestrator_ends_in_its_own_time_and_all_is_well(tmp_path: Path):
    with Launch(job(tmp_path, **WHOLE)) as launch:
        pids = [launch.pid(name) for name in WHOLE]
        kill(launch.pid("trainer"), signal.SIGUSR1)
        launch.until("waiting up to 3600 s for the orchestrator to end")
        assert all(map(_runs, [launch.pid(name) for name in OTHERS]))
        kill(launch.pid("orchestrator"), signal.SIGUSR1)
        assert launch.end() == 0
        assert launch.said("server")[-1] == launch.said("engine-0")[-1] == "told to end"
        assert "told to end" not in launch.said("orchestrator")
        wait_gone(pids)


def test_the_order_of_clean_ends_does_not_matter(tmp_path: Path):
    with Launch(job(tmp_path, **WHOLE)) as launch:
        pids = [launch.pid(name) for name in WHOLE]
        for name in ("orchestrator", "engine-0", "server", "trainer"):
            kill(launch.pid(name), signal.SIGUSR1)
            launch.until(f"{name} ended with code 0")
        assert launch.end() == 0
        assert "told to end" not in launch.text
        assert all(len(lives) == 1 for lives in launch.pids.values())
        wait_gone(pids)


def test_a_job_without_an_orchestrator_ends_with_its_trainer(tmp_path: Path):
    with Launch(job(tmp_path, server=act(), trainer=act())) as launch:
        launch.pid("server")
        kill(launch.pid("trainer"), signal.SIGUSR1)
        assert launch.end() == 0
        assert launch.said("server")[-1] == "told to end"


@pytest.mark.parametrize("victim", OTHERS)
def test_whoever_else_crashes_is_restarted_and_the_others_never_notice(tmp_path: Path, victim: str):
    with Launch(job(tmp_path, **WHOLE)) as launch:
        before = {name: launch.pid(name) for name in WHOLE}
        kill(before[victim])
        launch.until(rf"launcher +\| {victim} ended with code 137 .*; starting it again in 0.05 s \(crash 1 in a row")
        assert launch.pid(victim, life=2) != before[victim]
        assert all(_runs(before[name]) for name in WHOLE if name != victim)
        kill(launch.pid("orchestrator", life=2 if victim == "orchestrator" else 1), signal.SIGUSR1)
        kill(before["trainer"], signal.SIGUSR1)
        assert launch.end() == 0
        assert {name: len(lives) for name, lives in launch.pids.items() if len(lives) > 1} == {victim: 2}


def test_an_orchestrator_that_crashes_after_the_trainers_success_is_restarted_to_finish(tmp_path: Path):
    with Launch(job(tmp_path, **WHOLE)) as launch:
        for name in WHOLE:
            launch.pid(name)
        kill(launch.pid("trainer"), signal.SIGUSR1)
        launch.until("waiting up to")
        kill(launch.pid("orchestrator"))
        kill(launch.pid("orchestrator", life=2), signal.SIGUSR1)
        assert launch.end() == 0


def test_what_crashes_again_and_again_stays_down_at_the_limit_and_the_job_goes_on(tmp_path: Path):
    with Launch(job(tmp_path, trainer=act(), **{"engine-0": act("crashing")})) as launch:
        trainer = launch.pid("trainer")
        launch.until("engine-0 ended with code 3 .* crash 4 in a row; it stays down, and the job goes on without it")
        assert re.findall(r"engine-0 ended .* again in ([\d.]+) s", launch.text) == ["0.05", "0.1", "0.2"]
        assert _runs(trainer)
        kill(trainer, signal.SIGUSR1)
        assert launch.end() == 0


def test_an_orchestrator_that_stays_down_does_not_keep_a_job_from_its_end(tmp_path: Path):
    with Launch(job(tmp_path, trainer=act(), orchestrator=act("crashing"))) as launch:
        launch.until("it stays down")
        kill(launch.pid("trainer"), signal.SIGUSR1)
        assert launch.end() == 0


def test_an_orchestrator_that_never_ends_is_ended(tmp_path: Path):
    settings = QUICK + "drain_s = 0.1\n"
    with Launch(job(tmp_path, settings=settings, trainer=act(), orchestrator=act())) as launch:
        launch.pid("orchestrator")
        kill(launch.pid("trainer"), signal.SIGUSR1)
        assert launch.end() == 0
        assert "launcher     | the orchestrator has not ended within 0.1 s; ending it" in launch.lines
        assert launch.said("orchestrator")[-1] == "told to end"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_to_the_launcher_ends_all_in_order(tmp_path: Path, number: signal.Signals):
    with Launch(job(tmp_path, **WHOLE)) as launch:
        pids = [launch.pid(name) for name in WHOLE]
        launch.signal(number)
        assert launch.end() == 128 + number
        told = [line.split()[0] for line in launch.lines if line.endswith("told to end")]
        assert told[:2] == ["trainer", "orchestrator"]
        assert set(told) == set(WHOLE)
        wait_gone(pids)


def test_who_does_not_end_when_told_to_is_killed(tmp_path: Path):
    settings = "stop_s = 0.2\n"
    with Launch(job(tmp_path, settings=settings, trainer=act(), server=act("stubborn", "parent"))) as launch:
        launch.pid("server", life=3)
        kill(launch.pid("trainer"), signal.SIGUSR1)
        assert launch.end() == 0
        assert "launcher | server did not end within 0.2 s; killing it" in launch.lines
        wait_gone(launch.pids["server"])


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
