"""What can go wrong around the ledger, and what it says then."""

import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text, update

from dataserver.database import engine, filesystem
from dataserver.errors import InvalidConfigError, UnavailableError
from dataserver.ledger import open_ledger, schema
from dataserver.ledger.database import open_database

CRASHER = Path(__file__).with_name("crasher.py")


def crash(path: Path, how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, CRASHER, f"sqlite:///{path}", how], capture_output=True, text=True, timeout=60
    )


def test_writes_are_durable_whatever_the_servers_default_is(database):
    setting = "SHOW synchronous_commit" if database.place.startswith("postgresql") else "PRAGMA synchronous"
    expected = {"write": ("on", 2), "note": ("off", 1)}
    for mode, allowed in expected.items():
        run = getattr(database, mode)
        assert run(lambda c: c.execute(text(setting)).scalar_one()) in allowed, mode


def test_a_file_that_another_process_is_about_to_write_is_waited_for(tmp_path):
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("CREATE TABLE theirs (x)")
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            opening = pool.submit(open_ledger, f"sqlite:///{path}", lease_s=30)
            with pytest.raises(TimeoutError):
                opening.result(timeout=1)
            other.execute("COMMIT")
            with closing(opening.result(timeout=60)) as ledger:
                assert ledger.list_runs(10) == []


def test_a_file_that_stays_locked_is_refused_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", 0.1)
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE theirs (x)")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match=r"ledger\.db: another process has locked it for too long"):
            open_ledger(f"sqlite:///{path}", lease_s=30)


def test_an_sqlite_ledger_keeps_a_write_ahead_log(tmp_path):
    open_ledger(f"sqlite:///{tmp_path}/ledger.db", lease_s=30).close()
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_failing_transaction_leaves_nothing(database, story):
    def half(connection):
        connection.execute(update(schema.runs).values(sealed_step=99))
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        database.write(half)
    assert story.run.sealed_step == 0


def test_the_ledgers_own_clock_is_the_time(url):
    database = open_database(url)
    assert database.read(database.clock) == pytest.approx(time.time(), abs=5)
    database.close()


def test_reopening_finds_what_was_written(url, story):
    story.begin()
    story.seal(1, 1)
    again = open_ledger(url, lease_s=30)
    assert again.get_run("run") == story.run
    again.close()
    again.close()


def test_another_schema_is_refused_with_what_to_do(url):
    database = open_database(url)
    database.write(lambda c: c.execute(update(schema.schema_version).values(version=99)))
    try:
        told = rf"has schema 99, this server reads schema {schema.SCHEMA_VERSION}: .*begin a new ledger"
        with pytest.raises(InvalidConfigError, match=told):
            open_ledger(url, lease_s=30)
    finally:
        database.write(lambda c: c.execute(update(schema.schema_version).values(version=schema.SCHEMA_VERSION)))
        database.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "not a database URL"),
        ("mysql://host/db", "'mysql' is not supported"),
        ("sqlite://", "in memory forgets"),
        ("sqlite:///:memory:", "in memory forgets"),
        ("sqlite:////nosuch/dir/ledger.db", "there is no directory /nosuch/dir"),
    ],
)
def test_a_url_that_names_no_ledger_is_refused(url, message):
    with pytest.raises(InvalidConfigError, match=message):
        open_ledger(url, lease_s=30)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "ledger.db"
    path.write_bytes(b"no database at all, but long enough to be looked at" * 100)
    with pytest.raises(InvalidConfigError, match=f"{path}: it is not an SQLite database"):
        open_ledger(f"sqlite:///{path}", lease_s=30)


def test_a_file_that_may_not_be_written_is_refused_when_it_is_opened(tmp_path, monkeypatch):
    path = tmp_path / "ledger.db"
    connect = sqlite3.dbapi2.connect

    def only_reading(_path, **options):
        # As SQLite itself opens a file without the right to write; who is root has it always.
        return connect(f"file:{path}?mode=ro", uri=True, **options)

    with closing(open_ledger(f"sqlite:///{path}", lease_s=30)):  # one that may write it has it open
        monkeypatch.setattr(sqlite3.dbapi2, "connect", only_reading)
        with pytest.raises(InvalidConfigError, match=f"{path}: it is read-only; make the file and its directory"):
            open_ledger(f"sqlite:///{path}", lease_s=30)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "lustre"])
def test_a_file_on_a_network_filesystem_is_refused(tmp_path, monkeypatch, kind):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {tmp_path} rw shared:1 - {kind} server:/x rw\n")
    monkeypatch.setattr(filesystem, "MOUNTS", mounts)
    with pytest.raises(
        InvalidConfigError, match=f"{tmp_path}/ledger.db lies on .*network file system \\({kind}\\)"
    ) as e:
        open_ledger(f"sqlite:///{tmp_path}/ledger.db", lease_s=30)
    assert "PostgreSQL" in e.value.message
    assert not (tmp_path / "ledger.db").exists()


def test_a_lock_that_is_not_given_back_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "ledger.db"
    ledger = open_ledger(f"sqlite:///{path}", lease_s=30)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match=f"{path}: another process has locked it"):
        ledger.request_sync("run", 1)
    assert ledger.list_runs(10) == []
    other.execute("ROLLBACK")
    other.close()
    ledger.close()


def test_a_full_disk_pauses_the_ledger_and_leaves_no_half_state(tmp_path):
    done = crash(tmp_path / "ledger.db", "full")
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/ledger.db: its disk" in done.stdout
    assert "nothing was written" in done.stdout


def test_a_process_killed_inside_a_transaction_leaves_no_half_state(tmp_path):
    path = tmp_path / "ledger.db"
    assert crash(path, "kill").returncode == -signal.SIGKILL
    ledger = open_ledger(f"sqlite:///{path}", lease_s=30)
    run = ledger.get_run("run")
    assert (run.last_attempt, run.attempt.number, run.sealed_step, run.acked_steps) == (1, 1, 1, (0, 0))
    assert [event.kind for event in ledger.list_events("run", 10)] == ["created", "attempt_begun"]
    ledger.close()


def test_a_database_out_of_reach_is_unavailable_and_comes_back(postgres, empty_postgres):
    ledger = open_ledger(empty_postgres, lease_s=30)
    postgres.stop()
    try:
        with pytest.raises(UnavailableError, match=r"postgresql://ledger@/postgres.* is out of reach"):
            ledger.list_runs(1)
        with pytest.raises(UnavailableError, match="out of reach"):
            open_ledger(empty_postgres, lease_s=30)
    finally:
        postgres.start()
    assert ledger.list_runs(1) == []
    ledger.close()


def test_a_connection_that_breaks_inside_a_transaction_is_unavailable(postgres_database, empty_postgres):
    ending = text("SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(UnavailableError, match="out of reach"):
        postgres_database.write(lambda c: c.execute(ending))
    assert postgres_database.read(lambda c: c.execute(text("SELECT 1")).scalar_one()) == 1


def test_a_password_is_not_told():
    with pytest.raises(UnavailableError) as refusal:
        open_ledger("postgresql://ledger:secret@127.0.0.1:1/postgres", lease_s=30)
    assert "secret" not in refusal.value.message
