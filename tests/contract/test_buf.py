"""buf holds the contract: its style with `lint`, its promises to older peers with `breaking`.

Each check is run on the contract as it is, and on a copy that breaks it, which it must see.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
BUF = str(Path(sys.executable).with_name("buf"))

Edit = Callable[[str, str, str], None]


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    """A copy of the contract and of buf's configuration."""
    shutil.copy(REPOSITORY / "buf.yaml", tmp_path)
    shutil.copytree(REPOSITORY / "protos", tmp_path / "protos")
    return tmp_path


@pytest.fixture
def edit(contract: Path) -> Edit:
    """Replace a text in one .proto of the copy; the text must stand there once."""

    def replace(name: str, old: str, new: str) -> None:
        path = contract / "protos" / "dataserver" / "v1" / name
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {name}"
        path.write_text(text.replace(old, new))

    return replace


def lint(contract: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BUF, "lint"], cwd=contract, capture_output=True, text=True)


def breaking(contract: Path) -> subprocess.CompletedProcess[str]:
    baseline = REPOSITORY / "protos" / "baseline.binpb"
    return subprocess.run([BUF, "breaking", "--against", baseline], cwd=contract, capture_output=True, text=True)


def test_the_contract_passes_lint(contract: Path) -> None:
    result = lint(contract)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("batch_service.proto", "  // The step that the rank needs next: at least `base.step + 1`.\n", "", "comment"),
        ("run_service.proto", "  // Shows one run.\n", "", "comment"),
        ("run_spec.proto", "  // Not said; refused.\n  SHUFFLE_UNSPECIFIED = 0;\n", "", "zero"),
        ("cursor.proto", "int64 position = 5;", "int64 Position = 5;", "lower_snake_case"),
        ("run_service.proto", "(GetRunRequest) returns (GetRunResponse)", "(GetRunRequest) returns (Run)", "RPC"),
        ("error.proto", "package dataserver.v1;", "package dataserver;", "package"),
    ],
    ids=["field comment", "rpc comment", "enum without zero", "field case", "shared response", "package version"],
)
def test_lint_catches_a_copy_of_the_contract_that_breaks_its_style(
    contract: Path, edit: Edit, name: str, old: str, new: str, complaint: str
) -> None:
    edit(name, old, new)
    result = lint(contract)
    assert result.returncode != 0
    assert complaint.lower() in result.stdout.lower()
    assert name in result.stdout


def test_the_contract_keeps_its_promises_to_older_peers(contract: Path) -> None:
    result = breaking(contract)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("batch_service.proto", "  // Samples over all ranks.\n  int64 sample_count = 9;\n", "", "sample_count"),
        ("cursor.proto", "int64 position = 5;", "int64 position = 15;", "position"),
        ("batch_service.proto", "bytes tokens = 15;", "string tokens = 15;", "tokens"),
        ("run_spec.proto", "SHUFFLE_FULL = 2;", "SHUFFLE_WHOLE = 2;", "SHUFFLE_FULL"),
        (
            "run_service.proto",
            "  // Shows one run.\n  rpc GetRun(GetRunRequest) returns (GetRunResponse);\n",
            "",
            "GetRun",
        ),
    ],
    ids=["field removed", "field renumbered", "type changed", "enum value renamed", "rpc removed"],
)
def test_breaking_catches_a_copy_that_breaks_a_promise(
    contract: Path, edit: Edit, name: str, old: str, new: str, complaint: str
) -> None:
    edit(name, old, new)
    result = breaking(contract)
    assert result.returncode != 0
    assert complaint in result.stdout


def test_a_field_may_be_added(contract: Path, edit: Edit) -> None:
    edit("cursor.proto", "  Window window = 7;\n", "  Window window = 7;\n  // A note.\n  string note = 8;\n")
    result = breaking(contract)
    assert result.returncode == 0, result.stdout + result.stderr
