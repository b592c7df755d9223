"""What people see of the launcher: its lines, its refusals, and the restart that a process of the job can ask for."""

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from launchlab.launch import Launch, act, job, kill

from deploy.launcher.cli import main

RESTART = f"{sys.executable} -m deploy.launcher restart"


def test_output_has_the_names_of_its_processes_and_no_escapes(tmp_path: Path):
    with Launch(job(tmp_path, trainer=act("colourful"), **{"engine-0": act()})) as launch:
        launch.pid("engine-0")
        kill(launch.pid("trainer"), signal.SIGUSR1)
        assert launch.end() == 0
        assert launch.said("trainer")[:3] == ["red and plain", "50 %", "100 %"]
        assert launch.lines[0].index("|") == len("launcher ") == launch.lines[-1].index("|")
        assert launch.lines[-1] == "launcher | the job ended with code 0"


def test_commands_run_in_the_files_directory_with_their_environment(tmp_path: Path):
    trainer = "sh -c 'echo $PWD $NO_COLOR $GREETING'"
    path = job(tmp_path, trainer=trainer.replace("$", "$$"))
    path.write_text(path.read_text() + 'environment = { GREETING = "good morning" }\n')
    with Launch(path) as launch:
        assert launch.end() == 0
        assert launch.said("trainer") == [f"{tmp_path} 1 good morning"]


def test_an_engine_is_started_afresh_when_the_orchestrator_asks_for_it_without_counting_as_a_crash(tmp_path: Path):
    orchestrator = f"sh -c {shlex.quote(f'{RESTART} engine-0 && {RESTART} engine-0 && echo done; sleep 1000')}"
    commands = {"trainer": act(), "engine-0": act("stubborn"), "orchestrator": orchestrator}
    with Launch(job(tmp_path, settings="restarts = 0\nstop_s = 1\n", **commands)) as launch:
        launch.until(r"orchestrator +\| done")
        assert launch.pid("engine-0", life=2)
        assert len(launch.said("engine-0")) <= 3
        assert "crash" not in launch.text
        kill(launch.pid("trainer"), signal.SIGUSR2)
        assert launch.end() == 7


def test_an_engine_that_waits_for_its_restart_is_started_at_once_when_asked_for(tmp_path: Path):
    orchestrator = f"sh -c {shlex.quote(f'read line < pipe; {RESTART} engine-0 && echo done; sleep 1000')}"
    commands = {"trainer": act(), "engine-0": act(), "orchestrator": orchestrator}
    os.mkfifo(tmp_path / "pipe")
    with Launch(job(tmp_path, settings="backoff_s = 60\nstop_s = 1\n", **commands)) as launch:
        kill(launch.pid("engine-0"))
        launch.until("engine-0 ended .* starting it again in 60 s")
        (tmp_path / "pipe").write_text("go\n")
        assert launch.pid("engine-0", life=2)
        launch.until(r"orchestrator +\| done")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("engine-7", "'engine-7' is none of engine-0, orchestrator"),
        pytest.param("trainer", "'trainer' is none of", marks=pytest.mark.slow),
        ("engine-0", "has ended and stays down"),
    ],
)
def test_a_restart_that_cannot_be_is_refused(tmp_path: Path, name: str, fault: str):
    orchestrator = f"sh -c {shlex.quote(f'read line < pipe; {RESTART} {name} || echo refused')}"
    commands = {"trainer": act(), "engine-0": "true", "orchestrator": orchestrator}
    os.mkfifo(tmp_path / "pipe")
    with Launch(job(tmp_path, **commands)) as launch:
        launch.until("engine-0 ended with code 0")
        (tmp_path / "pipe").write_text("go\n")
        launch.until(rf"orchestrator +\| launcher: .*{fault}")
        launch.until(r"orchestrator +\| refused")


def test_a_restart_without_a_launcher_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAUNCHER_SOCKET", "launcher-that-is-gone")
    assert main(["restart", "engine-0"]) == 2
    assert capsys.readouterr().err == "launcher: the launcher does not answer: Connection refused\n"
    monkeypatch.delenv("LAUNCHER_SOCKET")
    assert main(["restart", "engine-0"]) == 2
    assert "LAUNCHER_SOCKET is not set" in capsys.readouterr().err


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with Launch(job(tmp_path, trainer="no-such-program --at-all")) as launch:
        assert launch.end() == 127
        assert launch.said("trainer") == ["cannot start 'no-such-program': No such file or directory"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "trainer: Field required"),
        ("[trainer]\ncommand = ''", "trainer.command: String should have at least 1 character"),
        ("[trainer]\ncommand = 'a'\n[engine]\ncommand = 'b'", "engine: Extra inputs are not permitted"),
        ("[trainer]\ncommand = 'a'\n[engines.server]\ncommand = 'b'", "an engine cannot be named 'server'"),
        ("[trainer]\ncommand = 'a'\n[engines.'a b']\ncommand = 'b'", "String should match pattern"),
        ("[trainer]\ncommand = 'echo $NO_SUCH_VARIABLE'", "the environment variable NO_SUCH_VARIABLE is not set"),
        ("[trainer]\ncommand = '''echo \"'''", "No closing quotation"),
        ("[trainer]\ncommand = ' '", "' ': it names no program"),
        ("trainer", "cannot read the job"),
        ("restarts = -1\n[trainer]\ncommand = 'a'", "restarts: Input should be greater than or equal to 0"),
    ],
)
def test_a_job_that_cannot_be_started_as_written_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, fault: str
) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    assert main([str(path)]) == 2
    said = capsys.readouterr()
    assert fault in said.err
    assert (said.out, len(said.err.splitlines())) == ("", 1)
