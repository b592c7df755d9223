"""Syncs that ended, as they were reported; and which version a number names."""

import json
from typing import Any

from sqlalchemy import Connection, Row, delete, exists, func, insert, select, update

from dataserver.cursor import Cursor
from dataserver.ledger import schema, seals
from dataserver.ledger.records import RunRow
from dataserver.ledger.rules import branches
from dataserver.ledger.rules import syncs as sync_rules
from dataserver.weight_sync import PolicyVersion, SyncOutcome, WeightSync


def report(connection: Connection, run: RunRow, sync: WeightSync, now: float) -> WeightSync:
    """Write a report, or what it adds to the one before; the run's row is locked."""
    sync_rules.refuse_dropped_version(run, sync.version, maker(connection, run, sync.version.number))
    there = _read(connection, run, sync.sync_id)
    if there is None:
        written = _with_time(sync, now)
        offered = schema.offers
        count = select(func.count()).select_from(offered).where(offered.c.run_uid == run.uid).scalar_subquery()
        key = {"run_uid": run.uid, "sync_id": sync.sync_id, "offers": count}
        connection.execute(insert(schema.syncs).values(**key, **_values(written)))
        return written
    sync_rules.refuse_other_version(there, sync)
    written = sync_rules.merged(there, sync)
    if written != there:
        syncs = schema.syncs
        ours = (syncs.c.run_uid == run.uid, syncs.c.sync_id == sync.sync_id)
        connection.execute(update(syncs).where(*ours).values(**_values(written)))
    return written


def maker(connection: Connection, run: RunRow, number: int) -> int | None:
    """The attempt that made the surviving version `number`; None where there is none.

    A step's seal says it; for an adopted base its commit; and every attempt that begins at 0 makes a version 0.
    """
    seal = seals.read_seal(connection, run.uid, number)
    if seal is not None and not seal.end_of_run:
        return seal.attempt
    commits = schema.commits
    query = select(commits.c.attempt).where(commits.c.run_uid == run.uid, commits.c.step == number)
    found = connection.execute(query).scalar_one_or_none()
    return found if found is not None or number else _first_maker(connection, run)


def newest_version(connection: Connection, run: RunRow, number: int) -> PolicyVersion:
    """The surviving version of that number, which the run has."""
    return PolicyVersion(attempt=maker(connection, run, number) or 0, number=number)


def has_landed(connection: Connection, run: RunRow, number: int) -> bool:
    """Whether engines have served the surviving version."""
    syncs = schema.syncs
    ours = (syncs.c.run_uid == run.uid, syncs.c.number == number, syncs.c.outcome == SyncOutcome.LANDED)
    return bool(connection.execute(select(exists().where(*ours))).scalar_one())


def has_report(connection: Connection, run: RunRow, number: int, *, since_offer: int = -1) -> bool:
    """Whether a sync of the surviving version was reported; with `since_offer`, after that one of this attempt."""
    syncs = schema.syncs
    ours = (syncs.c.run_uid == run.uid, syncs.c.number == number, syncs.c.offers > since_offer)
    return bool(connection.execute(select(exists().where(*ours))).scalar_one())


def newest_landed(connection: Connection, run: RunRow) -> PolicyVersion | None:
    """The newest surviving version that engines have served."""
    syncs = schema.syncs
    query = select(syncs.c.attempt, syncs.c.number)
    query = query.where(syncs.c.run_uid == run.uid, syncs.c.outcome == SyncOutcome.LANDED)
    row = connection.execute(query.order_by(syncs.c.number.desc()).limit(1)).one_or_none()
    return None if row is None else PolicyVersion(attempt=row.attempt, number=row.number)


def newest(connection: Connection, run: RunRow, limit: int) -> list[WeightSync]:
    """Syncs of surviving versions, the newest first."""
    syncs = schema.syncs
    order = (syncs.c.report_time.desc(), syncs.c.number.desc(), syncs.c.sync_id)
    rows = connection.execute(select(syncs).where(syncs.c.run_uid == run.uid).order_by(*order).limit(limit))
    return [_sync(row) for row in rows]


def drop(connection: Connection, run: RunRow, steps: branches.Dropped, base: Cursor) -> None:
    """Rule 14: forget the syncs of versions that a new attempt drops; what is left was not offered by it yet."""
    syncs = schema.syncs
    connection.execute(delete(syncs).where(syncs.c.run_uid == run.uid, *_dropped(steps, base)))
    connection.execute(update(syncs).where(syncs.c.run_uid == run.uid).values(offers=0))


def _dropped(steps: branches.Dropped, base: Cursor) -> list[Any]:
    """Fresh weights are another version 0."""
    if base.step == 0:
        return []
    number = schema.syncs.c.number
    return [(number > steps.after) | (number <= steps.up_to)]


def _first_maker(connection: Connection, run: RunRow) -> int | None:
    attempts = schema.attempts
    query = select(attempts.c.number, attempts.c.base).where(attempts.c.run_uid == run.uid)
    for row in connection.execute(query.order_by(attempts.c.number.desc())):
        if Cursor.from_json(row.base).step == 0:
            return int(row.number)
    return None


def _read(connection: Connection, run: RunRow, sync_id: str) -> WeightSync | None:
    syncs = schema.syncs
    ours = (syncs.c.run_uid == run.uid, syncs.c.sync_id == sync_id)
    row = connection.execute(select(syncs).where(*ours)).one_or_none()
    return None if row is None else _sync(row)


def _with_time(sync: WeightSync, now: float) -> WeightSync:
    return WeightSync(
        sync_id=sync.sync_id,
        version=sync.version,
        outcome=sync.outcome,
        seconds=sync.seconds,
        stall_seconds=sync.stall_seconds,
        engines=tuple(sorted(set(sync.engines))),
        detail=sync.detail,
        report_time=now,
    )


def _values(sync: WeightSync) -> dict[str, Any]:
    return {
        "attempt": sync.version.attempt,
        "number": sync.version.number,
        "outcome": sync.outcome.value,
        "seconds": sync.seconds,
        "stall_seconds": sync.stall_seconds,
        "engines": json.dumps(sync.engines),
        "detail": sync.detail,
        "report_time": sync.report_time,
    }


def _sync(row: Row[Any]) -> WeightSync:
    return WeightSync(
        sync_id=row.sync_id,
        version=PolicyVersion(attempt=row.attempt, number=row.number),
        outcome=SyncOutcome(row.outcome),
        seconds=row.seconds,
        stall_seconds=row.stall_seconds,
        engines=tuple(json.loads(row.engines)),
        detail=row.detail,
        report_time=row.report_time,
    )
