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

from dataserver.errors import InternalError, UnavailableError
from dataserver.ledger.faults import fault_of, wants_retry

Result = TypeVar("Result")
Work = Callable[[Connection], Result]

# Conflicts of serialization and deadlocks end with one winner each, so that few suffice.
MAX_TRIES = 10

# Read by the engines when a transaction begins.
MODE = "ledger_mode"
WRITE, NOTE, READ = "write", "note", "read"
# For a statement that no transaction may surround.
OUTSIDE = "outside"


class Database:
    """One database and the three ways of using it.

    `place` names it in messages, without a password. `check` runs before each transaction and raises
    where the database is no longer the one that was opened.
    """

    def __init__(
        self,
        engine: Engine,
        place: str,
        clock: Callable[[Connection], float],
        check: Callable[[], None] | None = None,
    ) -> None:
        self.place = place
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
                raise UnavailableError(f"ledger {self.place}: all connections are busy; try again") from error
            except IntegrityError as error:
                # Two creators of one row: on the second try the loser reads what the winner wrote.
                if not tries_left:
                    raise fault_of(error, self.place) from error
            except DBAPIError as error:
                if not (tries_left and wants_retry(error)):
                    raise fault_of(error, self.place) from error
        raise InternalError(f"ledger {self.place}: no try was made")
