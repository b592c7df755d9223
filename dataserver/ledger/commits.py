"""Cursors that the ledger knows: committed ones, and the ends of sealed steps."""

from sqlalchemy import Connection, delete, false, insert, select, true, update

from dataserver.cursor import Cursor
from dataserver.ledger import events, runs, schema, seals
from dataserver.ledger.history import Commit
from dataserver.ledger.interface import Attempt
from dataserver.ledger.records import RunRow
from dataserver.ledger.rules import branches
from dataserver.ledger.rules import cursors as cursor_rules
from dataserver.ledger.rules import steps as step_rules

# How many known versions of each kind a refusal looks at on either side.
_NEAREST = 2


def commit(
    connection: Connection, run: RunRow, attempt: Attempt, cursor: Cursor, checkpoint_uri: str, *, now: float
) -> None:
    """Note that a checkpoint holds everything up to `cursor`; `attempt` is the current one."""
    cursor_rules.refuse_foreign_cursor(run, cursor)
    step_rules.refuse_off_course_commit(run, cursor, _end_of(connection, run, attempt, cursor.step))
    if not record(connection, run, cursor, checkpoint_uri, attempt=attempt.number, now=now):
        return
    runs.change(connection, run, committed=step_rules.committed_after(run.committed, cursor).to_json())
    events.record(
        connection,
        run.uid,
        now,
        kind="committed",
        attempt=attempt.number,
        step=cursor.step,
        detail=f"checkpoint {checkpoint_uri}" if checkpoint_uri else "no checkpoint named",
    )


def record(
    connection: Connection, run: RunRow, cursor: Cursor, checkpoint_uri: str, *, attempt: int, now: float
) -> bool:
    """Write the commit's row; False if it stands there already."""
    commits = schema.commits
    key = (commits.c.run_uid == run.uid, commits.c.step == cursor.step)
    row = connection.execute(select(commits.c.cursor, commits.c.checkpoint_uri).where(*key)).one_or_none()
    values = {"attempt": attempt, "cursor": cursor.to_json(), "checkpoint_uri": checkpoint_uri, "time": now}
    if row is None:
        connection.execute(insert(commits).values(run_uid=run.uid, step=cursor.step, **values))
    elif row.cursor == values["cursor"] and checkpoint_uri in (row.checkpoint_uri, ""):
        return False
    else:
        connection.execute(update(commits).where(*key).values(**values))
    return True


def known_cursor(connection: Connection, run: RunRow, version: int) -> tuple[Cursor, str] | None:
    """Cursor and checkpoint URI (or "") of a version: a commit's, else a surviving seal's, else the beginning."""
    commits = schema.commits
    row = connection.execute(
        select(commits.c.cursor, commits.c.checkpoint_uri).where(
            commits.c.run_uid == run.uid, commits.c.step == version
        )
    ).one_or_none()
    if row is not None:
        return Cursor.from_json(row.cursor), row.checkpoint_uri
    seal = seals.read_seal(connection, run.uid, version)
    if seal is not None and not seal.end_of_run:
        return seal.end, ""
    if version == 0:
        return Cursor(order_fingerprint=run.order_fingerprint), ""
    return None


def cursor_of(connection: Connection, run: RunRow, version: int) -> tuple[Cursor, str]:
    """Cursor and checkpoint URI (or "") of a known version. Raises `VersionNotFoundError`."""
    known = known_cursor(connection, run, version)
    nearest = _nearest_versions(connection, run, version) if known is None else ()
    cursor = cursor_rules.cursor_by_version(run, version, known[0] if known else None, nearest)
    return cursor, known[1] if known else ""


def list_commits(connection: Connection, run: RunRow, limit: int, after_step: int) -> list[Commit]:
    """Surviving commits by step."""
    commits = schema.commits
    rows = connection.execute(
        select(commits)
        .where(commits.c.run_uid == run.uid, commits.c.step > after_step)
        .order_by(commits.c.step)
        .limit(limit)
    )
    return [
        Commit(cursor=Cursor.from_json(r.cursor), attempt=r.attempt, checkpoint_uri=r.checkpoint_uri, time=r.time)
        for r in rows
    ]


def drop(connection: Connection, run: RunRow, steps: branches.Dropped) -> list[int]:
    """Forget the commits of `steps`; returns which there were."""
    commits = schema.commits
    ours = (commits.c.run_uid == run.uid, (commits.c.step > steps.after) | (commits.c.step <= steps.up_to))
    dropped = list(connection.execute(select(commits.c.step).where(*ours).order_by(commits.c.step)).scalars())
    connection.execute(delete(commits).where(*ours))
    return dropped


def _end_of(connection: Connection, run: RunRow, attempt: Attempt, step: int) -> Cursor | None:
    """Where the attempt's step ends; its base counts as the end of the step before."""
    if step == attempt.base.step:
        return attempt.base
    seal = seals.read_seal(connection, run.uid, step)
    return seal.end if seal is not None and seal.attempt == attempt.number and not seal.end_of_run else None


def _nearest_versions(connection: Connection, run: RunRow, version: int) -> list[int]:
    """Some known versions around one that is not, by number; 0 is always known."""
    found = {0}
    for table, real in ((schema.commits, true()), (schema.seals, schema.seals.c.end_of_run.is_(false()))):
        step, own = table.c.step, (table.c.run_uid == run.uid, real)
        below = select(step).where(*own, step < version).order_by(step.desc()).limit(_NEAREST)
        above = select(step).where(*own, step > version).order_by(step).limit(_NEAREST)
        found.update(connection.execute(below).scalars(), connection.execute(above).scalars())
    return sorted(sorted(found, key=lambda known: abs(known - version))[: 2 * _NEAREST])
