"""The images' install commands work in an empty environment, and give a server without torch.

There is no container runtime where tests run, so the commands are taken out of the file and run in a tree that holds
exactly what the file copies.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
CONTAINERFILE = (REPOSITORY / "deploy" / "Containerfile").read_text()

# What a server runs: everything that `dataserver serve` needs, wired.
USE = """
import importlib.util
import dataserver.cli.main, dataserver.server.app, dataserver.client, dataserver.stores
missing = [name for name in ("torch", "transformers", "pytest") if importlib.util.find_spec(name)]
assert not missing, f"{missing} are installed with the server"
"""


def stage(name: str) -> str:
    """The lines of one image."""
    found = re.search(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", CONTAINERFILE, re.MULTILINE | re.DOTALL)
    assert found, f"no image {name} in the Containerfile"
    return found[1]


def copied(lines: str) -> list[str]:
    """What an image takes from the repository."""
    return [source for line in re.findall(r"^COPY (.*) \S+$", lines, re.MULTILINE) for source in line.split()]


def installs(lines: str) -> list[str]:
    """Its install commands."""
    return re.findall(r"^RUN (python -m pip install .*)$", lines, re.MULTILINE)


@pytest.mark.parametrize("name", ["server", "engine"])
def test_everything_that_is_copied_exists(name: str) -> None:
    sources = copied(stage(name))
    assert sources
    assert [source for source in sources if not (REPOSITORY / source).exists()] == []


@pytest.mark.parametrize("name", ["server", "trainer", "orchestrator"])
def test_every_image_installs_what_is_pinned(name: str) -> None:
    commands = installs(stage(name))
    assert len(commands) == 1
    assert " -c constraints.txt " in commands[0]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_server_image_installs_in_an_empty_environment_without_torch(tmp_path: Path) -> None:
    tree, environment = tmp_path / "tree", tmp_path / "environment"
    tree.mkdir()
    for source in copied(stage("server")):
        if (REPOSITORY / source).is_dir():
            shutil.copytree(REPOSITORY / source, tree / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(REPOSITORY / source, tree)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    for command in installs(stage("server")):
        subprocess.run(command.replace("python", str(python), 1), shell=True, cwd=tree, check=True)  # noqa: S602
    for check in ([python, "-c", USE], [environment / "bin" / "dataserver", "--help"]):
        result = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
