"""Attempts: how one begins, and how a run is moved back. Nothing else rewinds."""

from sqlalchemy import Connection, delete, exists, insert, select

from dataserver.cursor import Cursor
from dataserver.ledger import arguments, commits, events, reports, runs, schema, seals
from dataserver.ledger.interface import Attempt
from dataserver.ledger.records import BeginRequest, RunRow
from dataserver.ledger.rules import attempts as attempt_rules
from dataserver.ledger.rules import branches
from dataserver.ledger.rules import cursors as cursor_rules


def begin(connection: Connection, run: RunRow, request: BeginRequest, now: float, lease_s: float) -> Attempt:
    """Write the new attempt's row and move the run to its base; the run's row is locked."""
    spec = run.read_spec()
    if request.batch is not None:
        arguments.check_batch_fits([stage.stage.order for stage in run.read_stages()], request.batch)
    current = runs.read_attempt(connection, run, lease_s)
    attempt_rules.refuse_fenced_holder(run, request.holder, fenced=_is_fenced(connection, run, request.holder))
    attempt_rules.refuse_live_attempt(run, current, now, take_over=request.take_over)
    attempt = Attempt(
        number=attempt_rules.next_attempt(run.last_attempt),
        attempt_id=request.attempt_id,
        base=(base := _base(connection, run, request)),
        version=base.step,
        world_size=request.world_size,
        dp_world_size=request.dp_world_size,
        batch=request.batch or spec.batch,
        holder=request.holder,
        begin_time=now,
        lease_expire_time=attempt_rules.lease_end(now, (), lease_s),
    )
    if current is not None and attempt_rules.fences_holder(current, request.holder, now):
        _displace(connection, run, current, attempt)
    _record_move(connection, run, request, attempt)
    dropped = _move(connection, run, base, number=attempt.number, now=now)
    runs.change(connection, run, current_attempt=attempt.number, current_attempt_id=attempt.attempt_id)
    _write_attempt(connection, run, attempt, dropped)
    return attempt


def rewind(connection: Connection, run: RunRow, version: int, now: float) -> None:
    """Move the run to `version` and fence every attempt so far; the run's row is locked."""
    base, _ = commits.cursor_of(connection, run, version)
    number = attempt_rules.next_attempt(run.last_attempt)
    dropped = _move(connection, run, base, number=number, now=now)
    runs.change(connection, run, current_attempt=None, current_attempt_id=None)
    fenced = f"; fences attempt {run.current_attempt}" if run.current_attempt is not None else ""
    detail = f"by request; {_stood(run)}{fenced}{dropped}"
    events.record(connection, run.uid, now, kind="rewound", attempt=number, step=version, detail=detail)


def _base(connection: Connection, run: RunRow, request: BeginRequest) -> Cursor:
    """Where the attempt begins: the checkpoint's cursor wins, else the version's, else the beginning."""
    if not request.resume:
        attempt_rules.refuse_start_over_commits(run)
        return Cursor(order_fingerprint=run.order_fingerprint)
    if request.cursor is not None:
        cursor_rules.refuse_foreign_cursor(run, request.cursor)
        cursor_rules.refuse_passed_stage(run, request.cursor)
        return request.cursor
    return commits.cursor_of(connection, run, request.version or 0)[0]


def _is_fenced(connection: Connection, run: RunRow, holder: str) -> bool:
    fenced = schema.fenced_holders
    query = select(exists().where(fenced.c.run_uid == run.uid, fenced.c.holder == holder))
    return bool(connection.execute(query).scalar_one())


def _displace(connection: Connection, run: RunRow, current: Attempt, attempt: Attempt) -> None:
    """Fence the holder of the live attempt that is taken over."""
    if not _is_fenced(connection, run, current.holder):
        connection.execute(insert(schema.fenced_holders).values(run_uid=run.uid, holder=current.holder))
    detail = f"{attempt.holder} took over from {current.holder}, which may not begin again"
    _record(connection, run, attempt, "attempt_displaced", detail, of=current)


def _record_move(connection: Connection, run: RunRow, request: BeginRequest, attempt: Attempt) -> None:
    """Say in the run's history where the ledger and the attempt's base disagree."""
    base = attempt.base
    known = commits.known_cursor(connection, run, base.step)
    agrees = known is not None and known[0] == base
    if request.cursor is not None and (not agrees or base.step > run.committed.step):
        differs = f", and knew step {base.step} with another cursor" if known is not None and not agrees else ""
        forgets = "" if agrees else "; forgets every step before it, whose way to it cannot be proven"
        detail = f"from {request.holder}'s checkpoint; {_stood(run)}{differs}{forgets}"
        _record(connection, run, attempt, "cursor_adopted", detail)
    if base.step < run.committed.step:
        _record(connection, run, attempt, "rewound", f"to the base of {request.holder}'s attempt; {_stood(run)}")


def _move(connection: Connection, run: RunRow, base: Cursor, *, number: int, now: float) -> str:
    """Make `base` the committed cursor and the head; forget what does not lead to it, and say what that was."""
    known = commits.known_cursor(connection, run, base.step)
    steps = branches.dropped_steps(base, None if known is None else known[0])
    dropped_seals = seals.drop(connection, run, steps)
    dropped_commits = commits.drop(connection, run, steps)
    reports.drop(connection, run, steps, base)
    for table in (schema.ranks, schema.streams, schema.offers):
        connection.execute(delete(table).where(table.c.run_uid == run.uid))
    if base.step > 0:
        commits.record(connection, run, base, "", attempt=number, now=now)
    runs.change(
        connection,
        run,
        last_attempt=number,
        committed=base.to_json(),
        sealed_step=base.step,
        ended=False,
        shutdown_deadline=None,
    )
    return _told("seals", dropped_seals) + _told("commits", dropped_commits)


def _write_attempt(connection: Connection, run: RunRow, attempt: Attempt, dropped: str) -> None:
    connection.execute(
        insert(schema.attempts).values(
            run_uid=run.uid,
            number=attempt.number,
            attempt_id=attempt.attempt_id,
            base=attempt.base.to_json(),
            world_size=attempt.world_size,
            dp_world_size=attempt.dp_world_size,
            batch=attempt.batch.model_dump_json(),
            holder=attempt.holder,
            begin_time=attempt.begin_time,
        )
    )
    rows = [
        {"run_uid": run.uid, "world_rank": rank, "acked_step": attempt.base.step, "acked_offer": 0}
        for rank in range(attempt.world_size)
    ]
    connection.execute(insert(schema.ranks), rows)
    sizes = f"world size {attempt.world_size}, dp world size {attempt.dp_world_size}"
    _record(connection, run, attempt, "attempt_begun", f"{attempt.holder}: version {attempt.version}, {sizes}{dropped}")


def _record(
    connection: Connection, run: RunRow, attempt: Attempt, kind: str, detail: str, *, of: Attempt | None = None
) -> None:
    """Append an event at the beginning of `attempt`, about it or about the attempt `of`."""
    number, step = (attempt.number, attempt.base.step) if of is None else (of.number, run.sealed_step)
    events.record(connection, run.uid, attempt.begin_time, kind=kind, attempt=number, step=step, detail=detail)


def _stood(run: RunRow) -> str:
    return f"the ledger stood at committed step {run.committed.step}, sealed step {run.sealed_step}"


def _told(what: str, steps: list[int]) -> str:
    """`; drops 3 commits of steps 5 to 9`, or nothing."""
    if not steps:
        return ""
    span = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    return f"; drops {len(steps)} {what} of {span}"
