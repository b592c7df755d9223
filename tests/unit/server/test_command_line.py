"""What the command line says before any server is asked."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from dataserver.cli.main import COMMANDS, main


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"dataserver {version('dataserver')}\n"


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(f"\n    {command} " in out for command in COMMANDS)


def test_a_store_that_is_named_twice_is_refused_with_both_paths(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--store", "a=/first", "--store", "a=/second"]) == 1
    error = capsys.readouterr().err
    assert "--store a is given twice, with /first and /second" in error


@pytest.mark.parametrize(
    "command",
    [
        ["run", "rewind", "r", "--version", str(2**63)],
        ["run", "rewind", "r", "--version", "-1"],
        ["cursor", "show", "r", "--version", str(10**30)],
        ["plan", "show", "r", "--steps", "1:2", "--world-size", str(2**31)],
        ["plan", "show", "r", "--steps", "1:2", "--world-size", "two"],
        ["plan", "estimate", "spec.toml", "--world-size", "0"],
    ],
)
def test_a_number_beyond_the_contract_is_wrong_usage(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2
    assert f"{command[-1]!r} is not a whole number from" in capsys.readouterr().err


@pytest.mark.parametrize("steps", ["2:1", "0:1", f"1:{2**63}", "1:" + "9" * 5000], ids=len)
def test_steps_beyond_the_contract_are_refused_in_words(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "show", "r", "--steps", steps]) == 1
    assert "steps count from 1, and B is the step after the last" in capsys.readouterr().err


def test_a_server_without_stores_says_so(tmp_path: Path) -> None:
    # The ledger is refused, so that the server does not stay.
    command = [sys.executable, "-m", "dataserver.cli.main", "serve", "--listen", "127.0.0.1:0", "--metrics-listen", ""]
    ended = subprocess.run(
        [*command, "--ledger", "oracle://x/y"], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert ended.returncode == 1
    warnings = [line for line in ended.stdout.splitlines() if line.startswith("warning:")]
    assert len(warnings) == 1
    assert "no store is configured" in warnings[0]


def test_steps_beyond_the_contract_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "show", "r", "--steps", f"{2**63}:{2**63 + 1}"]) == 1
    assert "at most 2^63 - 1" in capsys.readouterr().err
