"""The host's time is set while a ledger is in use: leases in its file end neither early nor late."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dataserver.database import Database, boot_clock
from dataserver.ledger.database import open_database


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    database = open_database(f"sqlite:///{path}/ledger.db")
    try:
        yield database
    finally:
        database.close()


def now(database: Database) -> float:
    return database.read(database.clock)


@pytest.mark.parametrize("moved_s", [-7200.0, 7200.0])
def test_a_host_clock_that_is_set_moves_no_time_in_any_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, moved_s: float
) -> None:
    real = time.time
    with opened(tmp_path) as first:
        before = now(first)
        monkeypatch.setattr(time, "time", lambda: real() + moved_s)
        with caplog.at_level(logging.WARNING, "dataserver.database.boot_clock"), opened(tmp_path) as second:
            assert before <= now(first) <= now(second) < before + 120
    assert f"ledger.db: the host's clock was moved by {moved_s:+.0f} s" in caplog.text


def test_the_clock_goes_on_while_the_host_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.clock_gettime
    with opened(tmp_path) as database:
        before = now(database)
        slept = {time.CLOCK_BOOTTIME: 500.0}
        monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + slept.get(clock, 0.0))
        assert now(database) >= before + 500


def test_where_the_kernel_names_no_boot_a_process_keeps_its_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(boot_clock, "BOOT_ID", tmp_path / "hidden")
    with opened(tmp_path) as database:
        before = now(database)
        monkeypatch.setattr(time, "time", lambda: real() - 7200)
        assert before <= now(database) < before + 120


def test_after_a_boot_the_time_is_the_hosts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    with opened(tmp_path) as database:
        before = now(database)
    (tmp_path / "boot_id").write_text("another boot\n")
    monkeypatch.setattr(boot_clock, "BOOT_ID", tmp_path / "boot_id")
    monkeypatch.setattr(time, "time", lambda: real() + 7200)
    with opened(tmp_path) as first, opened(tmp_path) as second:
        assert before + 7200 <= now(first) <= now(second)
