"""Databases, set up so that what a transaction wrote is there after a power cut.

SQLite: a write-ahead log, so that readers do not wait; `BEGIN IMMEDIATE`, so that a transaction
takes the lock before it reads; `synchronous = FULL`, which syncs the log with every commit.
PostgreSQL: `synchronous_commit = on` whatever the server's default is; writers lock the run's row.
"""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError

from dataserver.database.boot_clock import BootClock
from dataserver.database.faults import fault_of, is_busy
from dataserver.database.filesystem import refuse_network_filesystem
from dataserver.database.log_room import take_log_room
from dataserver.database.same_file import SameFile
from dataserver.database.transactions import MODE, NOTE, OUTSIDE, READ, Database
from dataserver.errors import InvalidConfigError

# How long a statement waits for another process's lock. Transactions take milliseconds.
BUSY_TIMEOUT_S = 15.0
# Where SQLite does not wait by itself: how often it is asked again.
BUSY_RETRY_S = 0.02
CONNECT_TIMEOUT_S = 10
POOL_SIZE = 16
# Any number that nobody else locks: two processes that start together create their tables one by one.
_SCHEMA_LOCK = 0x6C65646765720001


def open_database(url: str, *, what: str, prepare: Callable[[Connection, str], None]) -> Database:
    """Connect to `url`, and see to the tables of `what` is kept there by `prepare(connection, name in messages)`.

    Raises `InvalidConfigError`, `UnavailableError`.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InvalidConfigError(
            f"{what}: its URL is not a database URL: give sqlite:///PATH or postgresql://HOST/DATABASE (it is not "
            "shown, for it may hold a password)"
        ) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        database = _open_sqlite(parsed, what)
    elif backend in ("postgresql", "postgres"):
        database = _open_postgres(parsed, what)
    else:
        shown = parsed.render_as_string(hide_password=True)
        raise InvalidConfigError(f"{what} {shown!r}: {backend!r} is not supported; use sqlite or postgresql")
    try:
        database.write(lambda connection: _prepare(connection, database, prepare))
    except BaseException:
        database.close()
        raise
    return database


def as_durable_sqlite(engine: Engine) -> Engine:
    """Make an SQLite engine's transactions follow `database.MODE`."""
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _open_sqlite(url: URL, what: str) -> Database:
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise InvalidConfigError(f"{what} {url}: name a file, as in sqlite:///runs.db; one in memory forgets all")
    path = Path(url.database).absolute()
    if not path.parent.is_dir():
        raise InvalidConfigError(f"{what} {path}: there is no directory {path.parent}; create it first")
    refuse_network_filesystem(path, what)
    connect_args = {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}
    engine = as_durable_sqlite(
        create_engine(f"sqlite+pysqlite:///{path}", connect_args=connect_args, pool_size=POOL_SIZE)
    )
    try:
        _switch_to_wal(engine, f"{what} {path}")
        with engine.connect().execution_options(**{MODE: OUTSIDE}) as connection:
            take_log_room(connection, path)
    except DBAPIError as error:
        engine.dispose()
        raise fault_of(error, f"{what} {path}") from error
    return Database(engine, what, str(path), BootClock(), SameFile(path, what).check)


def _switch_to_wal(engine: Engine, name: str) -> None:
    """Make the file keep a write-ahead log, from now on for everyone.

    SQLite waits here for who reads, but not for who is about to write, which another process is that opens a new file
    at the same time: it would hold a lock of its own meanwhile.
    """
    until = time.monotonic() + BUSY_TIMEOUT_S
    with engine.connect().execution_options(**{MODE: OUTSIDE}) as connection:
        while True:
            try:
                mode = connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar_one()
                break
            except DBAPIError as error:
                if not is_busy(error) or time.monotonic() >= until:
                    raise
                time.sleep(BUSY_RETRY_S)
    if mode != "wal":
        raise InvalidConfigError(
            f"{name}: SQLite keeps no write-ahead log here (journal mode {mode!r}); put the file on a local disk"
        )


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself; `_begin_sqlite` does
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    mode = connection.get_execution_options().get(MODE)
    if mode == OUTSIDE:
        return
    if mode == READ:
        connection.exec_driver_sql("BEGIN")
        return
    connection.exec_driver_sql(f"PRAGMA synchronous = {'NORMAL' if mode == NOTE else 'FULL'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _open_postgres(url: URL, what: str) -> Database:
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "options": f"-c synchronous_commit=on -c lock_timeout={int(BUSY_TIMEOUT_S * 1000)}",
            # A host that is gone without a word is noticed while those who wait for it are still patient.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 25_000,
        },
        pool_size=POOL_SIZE,
        pool_pre_ping=True,
        isolation_level="READ COMMITTED",
    )
    event.listen(engine, "begin", _begin_postgres)
    # The query may hold a password too.
    return Database(engine, what, url.set(query={}).render_as_string(hide_password=True), _postgres_clock)


def _begin_postgres(connection: Connection) -> None:
    mode = connection.get_execution_options().get(MODE)
    if mode == READ:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    elif mode == NOTE:
        connection.exec_driver_sql("SET LOCAL synchronous_commit = off")


def _postgres_clock(connection: Connection) -> float:
    """The database's clock, which all that use it share."""
    return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())


def _prepare(connection: Connection, database: Database, prepare: Callable[[Connection, str], None]) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})
    else:
        # SQLite opens what it may not write, and takes `BEGIN IMMEDIATE` there for a read: only a write is refused.
        connection.exec_driver_sql("PRAGMA user_version = 0")
    prepare(connection, database.name)
    if isinstance(database.clock, BootClock):
        database.clock.settle(connection, database.name)
