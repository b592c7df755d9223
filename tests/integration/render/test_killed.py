"""Killed at whatever moment, however often, a job gives the same bytes in the end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "lives" / "killed.py"


def killed(source: Path, tokenizer: Path, directory: Path, kills: int) -> int:
    command = [
        sys.executable,
        str(SCRIPT),
        str(source),
        str(tokenizer),
        *map(str, (directory / "out", directory / "whole")),
    ]
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run([*command, str(kills)], capture_output=True, text=True, env=environment, timeout=1700)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in directory.iterdir() if "rendering" in path.name) == []
    return int(done.stdout)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("chats") / "chats.jsonl"
    rows = ({"prompt": f"{n} " + "what " * (n % 60), "completion": f"{n} " + "that " * (n % 120)} for n in range(1200))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_job_that_is_killed_twice_gives_the_same_bytes(source, chatml, tmp_path):
    assert killed(source, chatml, tmp_path, 2) == 2


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_job_that_is_killed_a_hundred_times_gives_the_same_bytes(source, chatml, tmp_path):
    assert killed(source, chatml, tmp_path, 100) == 100
