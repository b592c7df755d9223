"""Transactions: begun, retried where the database asks for it, and its faults as ours.

write(work)     locks first; durable when it returns
note(work)      the same, but a power cut may forget it (acks, leases)
read(work)      one snapshot
"""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from dataserver.database.faults import fault_of, wants_retry
from dataserver.errors import InternalError, UnavailableError

Result = TypeVar("Result")
Work = Callable[[Connection], Result]

# Conflicts of serialization and deadlocks end with one winner each, so that few suffice.
MAX_TRIES = 10

# Read by the engines when a transaction begins.
MODE = "database_mode"
WRITE, NOTE, READ = "write", "note", "read"
# For a statement that no transaction may surround.
OUTSIDE = "outside"


class Database:
    """One database and the three ways of using it.

    `what` is kept in it, `place` says where it is, without a password; both name it in messages. `check` runs
    before each transaction and raises where the database is no longer the one that was opened.
    """

    def __init__(
        self,
        engine: Engine,
        what: str,
        place: str,
        clock: Callable[[Connection], float],
        check: Callable[[], None] | None = None,
    ) -> None:
        self.place = place
        self.name = f"{what} {place}"
        self.clock = clock
        self._engine = engine
        self._check = check
        self._modes = {mode: engine.execution_options(**{MODE: mode}) for mode in (WRITE, NOTE, READ)}

    def write(self, work: Work[Result]) -> Result:
        """Run `work` in a transaction that is durable when this returns."""
        return self._run(WRITE, work)

    def note(self, work: Work[Result]) -> Result:
        """Run `work` in a transaction that a power cut may undo."""
        return self._run(NOTE, work)

    def read(self, work: Work[Result]) -> Result:
        """Run `work` on one consistent snapshot."""
        return self._run(READ, work)

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._engine.dispose()

    def _run(self, mode: str, work: Work[Result]) -> Result:
        if self._check is not None:
            self._check()
        for tries_left in reversed(range(MAX_TRIES)):
            try:
                with self._modes[mode].begin() as connection:
                    return work(connection)
            except PoolTimeoutError as error:
                raise UnavailableError(f"{self.name}: all connections are busy; try again") from error
            except IntegrityError as error:
                # Two creators of one row: on the second try the loser reads what the winner wrote.
                if not tries_left:
                    raise fault_of(error, self.name) from error
            except DBAPIError as error:
                if not (tries_left and wants_retry(error)):
                    raise fault_of(error, self.name) from error
        raise InternalError(f"{self.name}: no try was made")
