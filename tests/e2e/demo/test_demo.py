"""The README's first command does what it says, crashes included."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[3] / "docs" / "examples" / "demo" / "demo.py"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_demo_trains_through_its_crashes_and_proves_exactly_once_twice_in_one_folder(tmp_path: Path) -> None:
    for _ in range(2):
        result = subprocess.run([sys.executable, DEMO, tmp_path / "demo"], capture_output=True, text=True)
        lines = result.stdout.splitlines()
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
        # How much text there is depends on the version of Python.
        assert re.match(r"demo: ok 1\d{3} samples once each in \d\d steps, over a killed rank", lines[-1])
    assert (tmp_path / "demo" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_leaves_a_folder_alone_that_it_did_not_make(tmp_path: Path) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("years of work")
    result = subprocess.run([sys.executable, DEMO, tmp_path], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1].startswith("demo: failed: ")
    assert precious.exists()
