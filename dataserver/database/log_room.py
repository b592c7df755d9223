"""Room for an SQLite file's write-ahead log, taken from the file system before anybody waits for a commit.

Where a file grows, its sync waits for the file system's journal, and with it for what all others on that disk wrote
meanwhile: 5 ms in one commit of ten on a disk that others use, 60 in the worst. A sync of bytes that are there already
waits for these only. SQLite writes its log from the beginning again after so many pages, and never gives room back
while the file is open.
"""

from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from dataserver.database.faults import has_no_room

# SQLite begins its log anew after 1000 pages of 4096 bytes. The tenth more is for the transaction that gets there.
LOG_BYTES = 1100 * 4096
# Whatever is more than these goes to the log before the transaction ends, and stays in it as room.
_PAGES_HELD = 8


def take_log_room(connection: Connection, path: Path) -> None:
    """Let the log of the SQLite file at `path` be `LOG_BYTES` long, by a transaction that is undone.

    The room is on the disk with the next commit. A disk without it is no fault here: whoever writes is told.
    Raises `DBAPIError`, for instance where another process has the file locked for too long.
    """
    with suppress(FileNotFoundError):  # whoever closes the file last removes it
        if Path(f"{path}-wal").stat().st_size >= LOG_BYTES:
            return
    held = connection.exec_driver_sql("PRAGMA cache_size").scalar_one()
    connection.exec_driver_sql(f"PRAGMA cache_size = {_PAGES_HELD}")
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        connection.exec_driver_sql("CREATE TABLE log_room (bytes)")
        connection.exec_driver_sql("INSERT INTO log_room VALUES (zeroblob(?))", (LOG_BYTES,))
    except DBAPIError as error:
        if not has_no_room(error):
            raise
    finally:
        connection.rollback()
        connection.exec_driver_sql(f"PRAGMA cache_size = {held}")
