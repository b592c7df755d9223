"""The real ledger on an SQLite database in memory, put back to any state that it ever had.

A call is a function of the database, the clock and its arguments, so each is made once: the
second time its outcome is remembered. Worlds that differ in anything but the ledger share them.
"""

import sqlite3
from functools import partial
from typing import Any

from sqlalchemy import StaticPool, create_engine

from dataserver.database import Database
from dataserver.database.engine import as_durable_sqlite
from dataserver.errors import DataServerError
from dataserver.ledger import schema
from dataserver.ledger.sql import SqlLedger

LEASE_S = 1.0

# What a state is known by: every row but the history, which nothing depends on.
_COLUMNS = {
    table.name: "*"
    if table is not schema.runs
    else "later_stages, last_attempt, current_attempt, current_attempt_id, committed, sealed_step, ended, "
    "last_requested, shutdown_deadline"
    for table in schema.metadata.sorted_tables
    if table not in (schema.schema_version, schema.events)
}


class LedgerBox:
    """States of one ledger by number; `state`, `now` and `restores` are what the next call meets.

    Attempts have one id until the ledger is restored from a copy, and another one after it.
    """

    def __init__(self) -> None:
        self.state = 0
        self.now = 0.0
        self.restores = 0
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._connection.execute("PRAGMA page_size = 512")
        engine = create_engine("sqlite://", creator=lambda: self._connection, poolclass=StaticPool)
        self._database = Database(as_durable_sqlite(engine), "ledger", "in memory", lambda _: self.now)
        self._database.write(lambda connection: schema.prepare(connection, "in memory"))
        self._ledger = SqlLedger(self._database, LEASE_S, new_attempt_id=lambda: f"id {self.restores}")
        self._numbers: dict[tuple[object, ...], int] = {}
        self._contents: list[bytes] = []
        self._outcomes: dict[tuple[object, ...], tuple[object, DataServerError | None, int]] = {}
        self.state = self._loaded = self._save()

    def __getattr__(self, method: str) -> partial[Any]:
        return partial(self._call, method)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        call = (self.state, self.now, self.restores, method, repr(args), repr(kwargs))
        if call not in self._outcomes:
            self._outcomes[call] = self._really_call(method, args, kwargs)
        result, error, self.state = self._outcomes[call]
        if error is not None:
            raise error.with_traceback(None)
        return result

    def _really_call(self, method: str, args: Any, kwargs: Any) -> tuple[object, DataServerError | None, int]:
        if self._loaded != self.state:
            self._connection.deserialize(self._contents[self.state])
        result, error = None, None
        try:
            result = getattr(self._ledger, method)(*args, **kwargs)
        except DataServerError as refusal:
            error = refusal
        self._loaded = self._save()
        return result, error, self._loaded

    def _save(self) -> int:
        rows: list[object] = []
        for table, columns in _COLUMNS.items():
            rows += sorted(self._connection.execute(f"SELECT '{table}', {columns} FROM {table}"), key=repr)  # noqa: S608
        number = self._numbers.setdefault(tuple(rows), len(self._contents))
        if number == len(self._contents):
            self._contents.append(self._connection.serialize())
        return number

    def close(self) -> None:
        self._database.close()
        self._connection.close()
