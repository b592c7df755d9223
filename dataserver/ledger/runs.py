"""Runs: their rows, and what else stands on them.

Whoever changes a run locks its row first, so that everything about one run happens in one order.
"""

import json
import uuid
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from dataserver.cursor import Cursor
from dataserver.errors import OutOfRangeError, RunNotFoundError
from dataserver.ledger import arguments, events, schema
from dataserver.ledger.interface import Attempt, Run
from dataserver.ledger.records import RankRow, RunRow, StageRow
from dataserver.ledger.rules import attempts as attempt_rules
from dataserver.ledger.rules import stages as stage_rules
from dataserver.ledger.rules import steps as step_rules
from dataserver.ledger.steps import AttemptKey, Seal
from dataserver.run_spec import BatchSpec, RunSpec

# Statements of every step are made once: to make one costs as much as to run it.
_BY_UID = select(schema.runs).where(schema.runs.c.uid == bindparam("uid"))
_LOCK_BY_UID = _BY_UID.with_for_update()
_SEALED = (
    update(schema.runs).where(schema.runs.c.uid == bindparam("sealed_uid")).values(sealed_step=bindparam("sealed_step"))
)


def lock_by_name(connection: Connection, name: str) -> RunRow:
    """The run's row, locked until the transaction ends. Raises `RunNotFoundError`."""
    return _row_by_name(connection, name, lock=True)


def read_by_name(connection: Connection, name: str) -> RunRow:
    """The run's row. Raises `RunNotFoundError`."""
    return _row_by_name(connection, name, lock=False)


def lock_by_uid(connection: Connection, uid: str) -> RunRow:
    """The run's row, locked until the transaction ends. Raises `RunNotFoundError`."""
    run = find_by_uid(connection, uid)
    if run is None:
        raise _gone(uid)
    return run


def read_by_uid(connection: Connection, uid: str) -> RunRow:
    """The run's row. Raises `RunNotFoundError`."""
    row = connection.execute(_BY_UID, {"uid": uid}).one_or_none()
    if row is None:
        raise _gone(uid)
    return _run_row(row)


def find_by_uid(connection: Connection, uid: str) -> RunRow | None:
    """The run's row, locked until the transaction ends, or None."""
    row = connection.execute(_LOCK_BY_UID, {"uid": uid}).one_or_none()
    return None if row is None else _run_row(row)


def create(
    connection: Connection, name: str, spec: RunSpec, order_fingerprint: str, *, epoch_samples: int, now: float
) -> tuple[RunRow, bool]:
    """The run of that name, created (True) or found with the same order (False), whose batch spec becomes `spec`'s."""
    found = connection.execute(select(schema.runs).where(schema.runs.c.name == name).with_for_update()).one_or_none()
    if found is not None:
        run = _run_row(found)
        stage_rules.refuse_other_order(run, spec, order_fingerprint)
        arguments.check_batch_fits([stage.read().stage.order for stage in run.later_stages], spec.batch)
        _adopt_batch(connection, run, spec.batch, now)
        return read_by_uid(connection, run.uid), False
    uid = uuid.uuid4().hex
    connection.execute(
        insert(schema.runs).values(
            uid=uid,
            name=name,
            spec=spec.model_dump_json(),
            order_fingerprint=order_fingerprint,
            epoch_samples=epoch_samples,
            later_stages="[]",
            create_time=now,
            last_attempt=0,
            committed=Cursor(order_fingerprint=order_fingerprint).to_json(),
            sealed_step=0,
            ended=False,
            last_requested=False,
            last_event=0,
        )
    )
    events.record(connection, uid, now, kind="created", detail=f"order {order_fingerprint}")
    return read_by_uid(connection, uid), True


def list_rows(connection: Connection, limit: int, after: str) -> list[RunRow]:
    """Runs by name."""
    runs = schema.runs
    rows = connection.execute(select(runs).where(runs.c.name > after).order_by(runs.c.name).limit(limit))
    return [_run_row(row) for row in rows]


def remove(connection: Connection, run: RunRow) -> None:
    """Delete the run and everything of it."""
    connection.execute(delete(schema.runs).where(schema.runs.c.uid == run.uid))


def describe(connection: Connection, run: RunRow, last: Seal | None, *, now: float, lease_s: float) -> Run:
    """The run as others see it; `last` is the seal of its last sealed step."""
    acked_steps = tuple(rank.acked_step for rank in read_ranks(connection, run))
    return Run(
        name=run.name,
        uid=run.uid,
        spec=run.read_spec(),
        order_fingerprint=run.order_fingerprint,
        stages=run.read_stages(),
        create_time=run.create_time,
        last_attempt=run.last_attempt,
        attempt=read_attempt(connection, run, lease_s),
        committed=run.committed,
        sealed_step=run.sealed_step,
        consumed_step=step_rules.consumed_step(acked_steps, run.committed.step),
        acked_steps=acked_steps,
        ended=run.ended,
        sealed=None if last is None else last.end,
        totals=None if last is None else last.totals,
        read_time=now,
    )


def read_attempt(connection: Connection, run: RunRow, lease_s: float) -> Attempt | None:
    """The current attempt with its lease; None before the first and after a rewind."""
    if run.current_attempt is None:
        return None
    return read_any_attempt(connection, run, run.current_attempt.number, lease_s)


def read_any_attempt(connection: Connection, run: RunRow, number: int, lease_s: float) -> Attempt:
    """An attempt with its lease; one that is over has it end where it began. Raises `OutOfRangeError`."""
    attempts, streams = schema.attempts, schema.streams
    row = connection.execute(
        select(attempts).where(attempts.c.run_uid == run.uid, attempts.c.number == number)
    ).one_or_none()
    if row is None:
        raise OutOfRangeError(
            f"run {run.name!r} has no attempt {number}; numbers were issued up to {run.last_attempt}, some to rewinds"
        )
    base = Cursor.from_json(row.base)
    lease_expire_time = row.begin_time
    if run.current_attempt is not None and number == run.current_attempt.number:
        leases = connection.execute(select(streams.c.lease_expire_time).where(streams.c.run_uid == run.uid))
        lease_expire_time = attempt_rules.lease_end(row.begin_time, leases.scalars().all(), lease_s)
    return Attempt(
        number=row.number,
        attempt_id=row.attempt_id,
        base=base,
        version=base.step,
        world_size=row.world_size,
        dp_world_size=row.dp_world_size,
        batch=BatchSpec.model_validate_json(row.batch),
        holder=row.holder,
        begin_time=row.begin_time,
        lease_expire_time=lease_expire_time,
    )


def read_ranks(connection: Connection, run: RunRow) -> list[RankRow]:
    """The ranks of the current attempt, by world rank."""
    ranks = schema.ranks
    rows = connection.execute(select(ranks).where(ranks.c.run_uid == run.uid).order_by(ranks.c.world_rank))
    return [
        RankRow(
            world_rank=row.world_rank,
            dp_rank=row.dp_rank,
            takes_offers=row.takes_offers,
            acked_step=row.acked_step,
            acked_offer=row.acked_offer,
        )
        for row in rows
    ]


def change(connection: Connection, run: RunRow, **values: str | float | bool | None) -> None:
    """Set columns of the run's row."""
    connection.execute(update(schema.runs).where(schema.runs.c.uid == run.uid).values(**values))


def note_sealed(connection: Connection, run: RunRow, step: int) -> None:
    """Make `step` the run's last sealed one."""
    connection.execute(_SEALED, {"sealed_uid": run.uid, "sealed_step": step})


def _row_by_name(connection: Connection, name: str, *, lock: bool) -> RunRow:
    arguments.check_label("run", name, arguments.MAX_NAME_LENGTH)
    query = select(schema.runs).where(schema.runs.c.name == name)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        count = connection.execute(select(func.count()).select_from(schema.runs)).scalar_one()
        raise RunNotFoundError(f"there is no run {name!r} among the ledger's {count}; create it first", run=name)
    return _run_row(row)


def _gone(uid: str) -> RunNotFoundError:
    return RunNotFoundError(f"run {uid} is gone: it was deleted, or the ledger was replaced", run_uid=uid)


def _run_row(row: Row[Any]) -> RunRow:
    current = None
    if row.current_attempt is not None:
        current = AttemptKey(number=row.current_attempt, attempt_id=row.current_attempt_id)
    return RunRow(
        uid=row.uid,
        name=row.name,
        spec=row.spec,
        order_fingerprint=row.order_fingerprint,
        epoch_samples=row.epoch_samples,
        later_stages=tuple(StageRow(**stage) for stage in json.loads(row.later_stages)),
        create_time=row.create_time,
        last_attempt=row.last_attempt,
        current_attempt=current,
        committed=Cursor.from_json(row.committed),
        sealed_step=row.sealed_step,
        ended=row.ended,
        last_requested=row.last_requested,
        shutdown_deadline=row.shutdown_deadline,
    )


def _adopt_batch(connection: Connection, run: RunRow, batch: BatchSpec, now: float) -> None:
    """Make another batch spec the run's, visibly: else who edits a spec and creates the run again trains by the old."""
    spec = run.read_spec()
    before, after = (one.model_dump(mode="json") for one in (spec.batch, batch))
    changed = ", ".join(f"{name}: {value} -> {after[name]}" for name, value in before.items() if value != after[name])
    if changed:
        change(connection, run, spec=spec.model_copy(update={"batch": batch}).model_dump_json())
        events.record(connection, run.uid, now, kind="batch_changed", step=run.sealed_step, detail=changed)
