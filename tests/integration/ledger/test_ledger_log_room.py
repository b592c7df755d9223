"""Room in an SQLite ledger's write-ahead log: there from the beginning, so that no commit makes the file grow."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, update

from dataserver.database import Database
from dataserver.database.engine import as_durable_sqlite
from dataserver.database.log_room import LOG_BYTES, take_log_room
from dataserver.database.transactions import MODE, OUTSIDE
from dataserver.ledger import schema
from dataserver.ledger.database import open_database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def opened(path: Path) -> Database:
    return open_database(f"sqlite:///{path}")


def log_bytes(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def test_the_log_has_its_room_when_the_ledger_is_open_and_the_ledger_nothing_else_in_it(path):
    with closing(opened(path)) as database:
        assert log_bytes(path) >= LOG_BYTES
        assert not any("log_room" in name for name in database.read(lambda c: inspect(c).get_table_names()))
    assert path.stat().st_size < LOG_BYTES
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_commits_stay_within_the_room_for_ever(path):
    with closing(opened(path)) as database:
        room = log_bytes(path)
        same = update(schema.schema_version).values(version=schema.SCHEMA_VERSION)
        for _ in range(1500):
            database.note(lambda connection: connection.execute(same))
        assert log_bytes(path) == room


def test_whoever_opens_the_ledger_next_takes_no_more_and_one_that_opens_it_later_takes_it_again(path):
    with closing(opened(path)):
        room = log_bytes(path)
        with closing(opened(path)):
            assert log_bytes(path) == room
    assert not Path(f"{path}-wal").exists()
    with closing(opened(path)):
        assert log_bytes(path) >= LOG_BYTES


def test_a_disk_without_the_room_is_no_fault_and_leaves_the_connection_as_it_was(path):
    opened(path).close()
    engine = as_durable_sqlite(create_engine(f"sqlite:///{path}"))
    with closing(engine.raw_connection()) as raw:
        raw.cursor().execute("PRAGMA max_page_count = 1")  # as many as there are: a disk that has no more
    with engine.connect().execution_options(**{MODE: OUTSIDE}) as connection:
        before = connection.exec_driver_sql("PRAGMA cache_size").scalar_one()
        take_log_room(connection, path)
        assert connection.exec_driver_sql("PRAGMA cache_size").scalar_one() == before
        assert not connection.connection.dbapi_connection.in_transaction
    engine.dispose()


# Opens a ledger where no file may have more bytes than this, and writes to it.
LIMITED = """
import resource, sys
from sqlalchemy import update
from dataserver.ledger import schema
from dataserver.ledger.database import open_database
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
database = open_database(f"sqlite:///{sys.argv[1]}")
same = update(schema.schema_version).values(version=schema.SCHEMA_VERSION)
print(database.write(lambda connection: connection.execute(same).rowcount))
"""


def test_a_limit_of_file_sizes_below_the_room_is_no_fault(path):
    opened(path).close()
    command = [sys.executable, "-c", LIMITED, str(path), "1000000"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended.stderr
