"""What the repository consists of."""

import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

# What a checkout without git may hold beside its own files; with git, these are ignored.
MADE_HERE = {".venv", ".venv-vllm", "build", "demo", "demo-evals", "results", "__pycache__"}


@pytest.fixture(scope="session")
def repository_files() -> list[Path]:
    """All files of the repository, relative to its root."""
    if (REPOSITORY / ".git").exists():
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True).stdout
        paths = [Path(name) for name in listing.decode().split("\0") if name]
        return [path for path in paths if (REPOSITORY / path).is_file()]
    paths = [path.relative_to(REPOSITORY) for path in REPOSITORY.rglob("*") if path.is_file()]
    return [path for path in paths if not any(part in MADE_HERE or part[0] == "." for part in path.parts[:-1])]


@pytest.fixture(scope="session")
def sources(repository_files: list[Path]) -> dict[Path, str]:
    """The text of every Python file that people wrote, tests aside."""
    written = [path for path in repository_files if path.suffix == ".py" and "_pb2" not in path.name]
    return {path: (REPOSITORY / path).read_text() for path in written if path.parts[0] != "tests"}
