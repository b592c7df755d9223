"""A run in which no test passed has failed, but where its time was over before the first could begin."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOME = ROOT / "tests" / "unit" / "wire" / "test_status_size.py"


def run(*options: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *options, str(SOME)]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(("end", "outcome"), [("1", "skipped"), ("inf", "passed")])
def test_tests_begin_until_their_time_is_over(end: str, outcome: str) -> None:
    ran = run(TESTS_END=end)
    assert ran.returncode == 0, ran.stdout
    assert f" {outcome} in " in ran.stdout.splitlines()[-1]
    assert ("the time for these tests was over" in ran.stdout) == (outcome == "skipped")


def test_a_run_of_nothing_has_failed() -> None:
    assert run("-k", "no_such_test", TESTS_END="inf").returncode == pytest.ExitCode.NO_TESTS_COLLECTED
