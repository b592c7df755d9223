"""A database's fault becomes the error that tells a client what to do: wait, or stop."""

import sqlite3

import psycopg
import pytest
from sqlalchemy.exc import OperationalError, ProgrammingError

from dataserver.database.faults import fault_of, wants_retry
from dataserver.errors import InternalError, InvalidConfigError, UnavailableError


def sqlite_error(code: int) -> OperationalError:
    error = sqlite3.OperationalError("told by sqlite")
    error.sqlite_errorcode = code
    return OperationalError("statement", {}, error)


def postgres_error(state: str | None, kind: type[psycopg.Error] = psycopg.OperationalError) -> OperationalError:
    error = kind("told by postgres")
    error.sqlstate = state
    return OperationalError("statement", {}, error)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_BUSY, UnavailableError),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, UnavailableError),
        (sqlite3.SQLITE_FULL, UnavailableError),
        (sqlite3.SQLITE_IOERR_WRITE, UnavailableError),
        (sqlite3.SQLITE_CANTOPEN, InvalidConfigError),
        (sqlite3.SQLITE_READONLY, InvalidConfigError),
        (sqlite3.SQLITE_NOTADB, InvalidConfigError),
        (sqlite3.SQLITE_CORRUPT, InternalError),
    ],
)
def test_sqlites_faults_name_the_file(code, expected):
    fault = fault_of(sqlite_error(code), "/data/runs.db")
    assert type(fault) is expected
    assert "/data/runs.db" in fault.message
    assert "told by sqlite" in fault.message


def test_a_damaged_file_is_told_with_what_to_do():
    assert "put a copy from before" in fault_of(sqlite_error(sqlite3.SQLITE_CORRUPT_INDEX), "/data/runs.db").message


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, UnavailableError),
        ("08006", UnavailableError),
        ("53100", UnavailableError),
        ("53300", UnavailableError),
        ("57P01", UnavailableError),
        ("25006", UnavailableError),
        ("55P03", UnavailableError),
        ("28P01", InvalidConfigError),
        ("3D000", InvalidConfigError),
        ("42501", InvalidConfigError),
        ("42601", InternalError),
    ],
)
def test_postgresqls_faults_name_the_server(state, expected):
    fault = fault_of(postgres_error(state), "ledger postgresql://host/db")
    assert type(fault) is expected
    assert fault.message.startswith("ledger postgresql://host/db")


def test_only_conflicts_are_run_again():
    assert [state for state in ("40001", "40P01", "08006", "57P01", None) if wants_retry(postgres_error(state))] == [
        "40001",
        "40P01",
    ]
    assert not wants_retry(sqlite_error(sqlite3.SQLITE_BUSY))


def test_a_fault_of_ours_in_a_statement_is_not_called_an_outage():
    error = ProgrammingError("statement", {}, psycopg.ProgrammingError("no such column"))
    assert type(fault_of(error, "postgresql://host/db")) is InternalError
