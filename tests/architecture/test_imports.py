"""The import rules of pyproject.toml hold, and what would break them in a copy is caught."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("dataserver", "trainer", "orchestrator", "deploy")


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    """import-linter, in a process that imports the packages of `tree`."""
    program = "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command as run; run()"
    command = [sys.executable, "-c", program, "--no-cache"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(REPOSITORY / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_imports_obey_the_rules() -> None:
    result = lint_imports(REPOSITORY)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("dataserver/utils.py", "", "Imports point down"),
        ("dataserver/planning/plan.py", "import random", "Index space is pure"),
        ("dataserver/planning/plan.py", "from dataserver.stores import open_store", "Imports point down"),
        ("dataserver/v1/__init__.py", "import dataserver.errors", "The contract imports nothing of ours"),
        ("dataserver/client/__init__.py", "import pyarrow", "The client is light"),
        ("dataserver/wire/__init__.py", "import torch", "The server knows no torch"),
        ("trainer/__init__.py", "import dataserver.ledger", "use contract and client only"),
        ("deploy/launcher/cli.py", "import dataserver.client", "The launcher knows commands, not programs"),
        ("orchestrator/__init__.py", "import trainer", "Trainer and orchestrator are strangers"),
        ("trainer/helpers.py", "", "The trainer's imports point down"),
        ("trainer/config.py", "import trainer.optim", "The trainer's imports point down"),
        ("trainer/checkpoint.py", "import torch", "configuration and checkpoints are read"),
        ("dataserver/batching/table.py", "import pyarrow", "Arrow is spoken in stores and what makes them only"),
        ("dataserver/streaming/__init__.py", "import sqlalchemy", "SQL is spoken where state is kept only"),
        ("dataserver/stores/__init__.py", "import grpc", "gRPC is spoken at the edges only"),
    ],
)
def test_a_stray_module_or_import_in_a_copy_is_caught(copy: Path, file: str, line: str, contract: str) -> None:
    path = copy / file
    path.write_text((path.read_text() if path.exists() else "") + f"\n{line}\n")
    result = lint_imports(copy)
    assert result.returncode != 0
    assert [row for row in result.stdout.splitlines() if contract in row and "BROKEN" in row], result.stdout
