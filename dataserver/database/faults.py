"""The faults of a database, as ours: which are retried, and what each says to whoever reads it."""

import sqlite3

from sqlalchemy.exc import DBAPIError

from dataserver.errors import DataServerError, InternalError, InvalidConfigError, UnavailableError

# SQLite's primary result codes (the low byte of an extended code).
_SQLITE_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: "another process has locked it for too long; see which one holds it open",
    sqlite3.SQLITE_LOCKED: "another connection has locked it for too long",
    sqlite3.SQLITE_FULL: "its disk is full; nothing was written. Make room: whoever waits goes on by itself",
    sqlite3.SQLITE_IOERR: "its disk reported an input/output error; nothing was written. Check disk and quota",
}
_SQLITE_CONFIG = {
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that the directory is there and that both are writable",
    sqlite3.SQLITE_READONLY: "it is read-only; make the file and its directory writable",
    sqlite3.SQLITE_PERM: "it may not be accessed; make the file and its directory writable",
    sqlite3.SQLITE_NOTADB: "it is not an SQLite database; name another file",
}

_DAMAGED = "its file is damaged; put a copy from before it was in its place, or name another file to begin anew"

# PostgreSQL's SQLSTATEs. Retried here: serialization failure, deadlock.
_POSTGRES_RETRY = {"40001", "40P01"}
# Retried by whoever called: the server comes back, or room is made. Whole classes by their first two characters.
_POSTGRES_UNAVAILABLE = {"08", "53", "57", "58"}
# A standby after a failover, a lock that nobody gives back.
_POSTGRES_UNAVAILABLE_STATES = {"25006", "55P03"}


def wants_retry(error: DBAPIError) -> bool:
    """Whether the same transaction, run again, may succeed at once."""
    return getattr(error.orig, "sqlstate", None) in _POSTGRES_RETRY


def is_busy(error: DBAPIError) -> bool:
    """Whether another process has the SQLite file locked just now."""
    return _sqlite_code(error.orig) == sqlite3.SQLITE_BUSY


def has_no_room(error: DBAPIError) -> bool:
    """Whether the SQLite file could not grow: its disk is full, or a quota or limit of file sizes is reached."""
    extended = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return extended == sqlite3.SQLITE_IOERR_WRITE or _sqlite_code(error.orig) == sqlite3.SQLITE_FULL


def fault_of(error: DBAPIError, name: str) -> DataServerError:
    """What to raise for `error`; `name` names the database in it."""
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_fault(error.orig, name)
    return _postgres_fault(error, name)


def _sqlite_fault(error: sqlite3.Error, name: str) -> DataServerError:
    code = _sqlite_code(error)
    if code in _SQLITE_UNAVAILABLE:
        return UnavailableError(f"{name}: {_SQLITE_UNAVAILABLE[code]} ({error})")
    if code in _SQLITE_CONFIG:
        return InvalidConfigError(f"{name}: {_SQLITE_CONFIG[code]} ({error})")
    if code == sqlite3.SQLITE_CORRUPT:
        return InternalError(f"{name}: {_DAMAGED} ({error})")
    return InternalError(f"{name}: {error}")


def _sqlite_code(error: BaseException | None) -> int:
    """SQLite's primary result code; that of a plain error where there is none."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def _postgres_fault(error: DBAPIError, name: str) -> DataServerError:
    state = getattr(error.orig, "sqlstate", None)
    reason = str(error.orig).strip()
    # A connection that could not be made, or broke, carries no state of its own.
    lost = error.connection_invalidated or (state is None and type(error.orig).__name__ == "OperationalError")
    if lost or state in _POSTGRES_UNAVAILABLE_STATES or (state or "")[:2] in _POSTGRES_UNAVAILABLE:
        return UnavailableError(f"{name} is out of reach: {reason}")
    if (state or "")[:2] in {"28", "3D", "3F"} or state == "42501":
        return InvalidConfigError(f"{name} refuses the connection: {reason}")
    return InternalError(f"{name}: {reason}")
