"""Credentials that end, from a program that AWS's tools ask for them, as companies have."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dataserver.storage import ObjectInfo

INFO = ObjectInfo(path="part-0.parquet", size=4 << 20, version="0123456789abcdef")

# Prints the next of the keys in `keys`, valid as long as `lives` says; fails where there is none left.
PROGRAM = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
first, *rest = (folder / "keys").read_text().split()
(folder / "keys").write_text(" ".join(rest))
print(json.dumps({"Version": 1, "AccessKeyId": first, "SecretAccessKey": "hunter2", "SessionToken": "t",
                  "Expiration": (folder / "lives").read_text()}))
"""


@pytest.fixture
def program(faulty, monkeypatch, tmp_path: Path) -> Path:
    """The folder of a program that hands out keys, set up as the only source of them."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (tmp_path / "program.py").write_text(PROGRAM)
    command = f"{sys.executable} {tmp_path / 'program.py'} {tmp_path}"
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {command}\n")
    return tmp_path


# Keys with less than ten minutes to live are renewed whenever they are asked for, the first time too.
def hand_out(folder: Path, *keys: str, lives: timedelta) -> None:
    (folder / "keys").write_text(" ".join(keys))
    (folder / "lives").write_text((datetime.now(UTC) + lives).isoformat())


@pytest.fixture
def asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the minute or two between two questions had passed."""
    monkeypatch.setattr("dataserver.storage.aws_credentials._SIGNER_MARGIN_S", -200.0)


def test_keys_that_live_long_are_asked_for_once(faulty, program: Path, asked_each_time) -> None:
    hand_out(program, "AKFIRST", "AKSECOND", lives=timedelta(hours=1))
    storage = faulty.storage()
    for _ in range(3):
        storage.read(INFO, 0, 10)
    assert faulty.keys == ["AKFIRST"] * 3


def test_keys_that_end_soon_are_renewed_before_they_do(faulty, program: Path, asked_each_time) -> None:
    hand_out(program, "AKFIRST", "AKFIRST", "AKSECOND", lives=timedelta(minutes=8))
    storage = faulty.storage()
    storage.read(INFO, 0, 10)
    (program / "lives").write_text((datetime.now(UTC) + timedelta(hours=1)).isoformat())
    for _ in range(2):
        storage.read(INFO, 0, 10)
    assert faulty.keys == ["AKFIRST", "AKSECOND", "AKSECOND"]


def test_a_renewal_that_fails_does_not_end_keys_that_are_still_taken(faulty, program: Path, asked_each_time) -> None:
    hand_out(program, "AKFIRST", "AKFIRST", lives=timedelta(minutes=5))
    storage = faulty.storage()
    for _ in range(3):
        assert len(storage.read(INFO, 0, 10)) == 10
    assert faulty.keys == ["AKFIRST"] * 3
    hand_out(program, "AKSECOND", lives=timedelta(hours=1))
    storage.read(INFO, 0, 10)
    assert faulty.keys[-1] == "AKSECOND"
