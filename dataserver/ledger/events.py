"""What happened to a run, for people."""

from sqlalchemy import Connection, insert, select, update

from dataserver.ledger import schema
from dataserver.ledger.history import Event
from dataserver.ledger.records import RunRow


def record(
    connection: Connection, run_uid: str, now: float, *, kind: str, attempt: int = 0, step: int = 0, detail: str = ""
) -> None:
    """Append to the run's history; the run's row is locked or new."""
    runs, table = schema.runs, schema.events
    connection.execute(update(runs).where(runs.c.uid == run_uid).values(last_event=runs.c.last_event + 1))
    number = select(runs.c.last_event).where(runs.c.uid == run_uid).scalar_subquery()
    connection.execute(
        insert(table).values(
            run_uid=run_uid, number=number, time=now, kind=kind, attempt=attempt, step=step, detail=detail
        )
    )


def list_events(connection: Connection, run: RunRow, limit: int, after: int) -> list[Event]:
    """The run's history, the oldest first."""
    table = schema.events
    ours = (table.c.run_uid == run.uid, table.c.number > after)
    rows = connection.execute(select(table).where(*ours).order_by(table.c.number).limit(limit))
    return [
        Event(number=r.number, time=r.time, kind=r.kind, attempt=r.attempt, step=r.step, detail=r.detail) for r in rows
    ]
