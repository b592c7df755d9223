"""Seals, with their stamp."""

from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select

from dataserver.cursor import Cursor
from dataserver.ledger import events, runs, schema, wishes
from dataserver.ledger.records import RunRow
from dataserver.ledger.rules import attempts as attempt_rules
from dataserver.ledger.rules import branches
from dataserver.ledger.rules import cursors as cursor_rules
from dataserver.ledger.rules import stages as stage_rules
from dataserver.ledger.rules import steps as step_rules
from dataserver.ledger.steps import AttemptKey, ProposedSeal, Seal
from dataserver.ledger.totals import SealedTotals, add_step
from dataserver.weight_sync import OrchestratorAddress

_SEALS = schema.seals
# Made once, as those of `runs`.
_OF_STEPS = select(_SEALS).where(
    _SEALS.c.run_uid == bindparam("uid"), _SEALS.c.step.in_((bindparam("step"), bindparam("before")))
)
_WRITE = insert(_SEALS)


def seal(connection: Connection, run: RunRow, attempt: AttemptKey, proposed: ProposedSeal, now: float) -> Seal:
    """Fix a step, or read how it was fixed; the run's row is locked."""
    attempt_rules.refuse_stale_attempt(run, attempt)
    stage_rules.refuse_outdated_plan(run, proposed)
    cursor_rules.refuse_foreign_cursor(run, proposed.end)
    known = _read_seals(connection, run.uid, step=proposed.step, before=run.sealed_step)
    found = known.get(proposed.step)
    if found is not None:
        step_rules.refuse_settled_step(run, found)
        step_rules.refuse_other_plan(run, found, proposed)
        return found
    step_rules.refuse_gap(run, proposed)
    before = known.get(run.sealed_step)
    step_rules.refuse_after_last(run, before, proposed)
    sync_weights = _sync_weights(connection, run, proposed, now)
    sealed = Seal(
        step=proposed.step,
        attempt=attempt.number,
        end=proposed.end,
        plan_digest=proposed.plan_digest,
        planner_version=proposed.planner_version,
        sync_weights=sync_weights,
        orchestrator=wishes.carrier(connection, run, now, sync_weights=sync_weights),
        last=proposed.last,
        end_of_run=proposed.end_of_run,
        totals=None
        if proposed.served is None
        else add_step(None if before is None else before.totals, proposed.served),
    )
    _write_seal(connection, run, sealed, now)
    return sealed


def read_seal(connection: Connection, run_uid: str, step: int) -> Seal | None:
    """The surviving seal of a step."""
    return _read_seals(connection, run_uid, step=step, before=step).get(step)


def _read_seals(connection: Connection, run_uid: str, *, step: int, before: int) -> dict[int, Seal]:
    """The surviving seals of two steps, by step."""
    rows = connection.execute(_OF_STEPS, {"uid": run_uid, "step": step, "before": before})
    return {row.step: _seal(row) for row in rows}


def _seal(row: Row[Any]) -> Seal:
    orchestrator = None
    if row.orchestrator_epoch is not None:
        orchestrator = OrchestratorAddress(epoch=row.orchestrator_epoch, address=row.orchestrator_address)
    return Seal(
        step=row.step,
        attempt=row.attempt,
        end=Cursor.from_json(row.end_cursor),
        plan_digest=row.plan_digest,
        planner_version=row.planner_version,
        sync_weights=row.sync_weights,
        orchestrator=orchestrator,
        last=row.last,
        end_of_run=row.end_of_run,
        totals=None if row.totals is None else SealedTotals.from_json(row.totals),
    )


def read_own_seal(connection: Connection, run: RunRow, step: int) -> Seal | None:
    """The seal of a step of the current attempt."""
    seal = read_seal(connection, run.uid, step)
    own = seal is not None and run.current_attempt is not None and seal.attempt == run.current_attempt.number
    return seal if own else None


def drop(connection: Connection, run: RunRow, steps: branches.Dropped) -> list[int]:
    """Forget the seals of `steps`; returns which there were."""
    seals = schema.seals
    ours = (seals.c.run_uid == run.uid, (seals.c.step > steps.after) | (seals.c.step <= steps.up_to))
    dropped = list(connection.execute(select(seals.c.step).where(*ours).order_by(seals.c.step)).scalars())
    connection.execute(delete(seals).where(*ours))
    return dropped


def _sync_weights(connection: Connection, run: RunRow, proposed: ProposedSeal, now: float) -> bool:
    if proposed.end_of_run:
        return False
    requested, held = wishes.of_version(connection, run, proposed.step, now)
    return step_rules.sync_flag(requested=requested or (proposed.last and run.last_requested), held=held)


def _write_seal(connection: Connection, run: RunRow, sealed: Seal, now: float) -> None:
    row = {
        "run_uid": run.uid,
        "step": sealed.step,
        "attempt": sealed.attempt,
        "end_cursor": sealed.end.to_json(),
        "plan_digest": sealed.plan_digest,
        "planner_version": sealed.planner_version,
        "sync_weights": sealed.sync_weights,
        "orchestrator_epoch": None if sealed.orchestrator is None else sealed.orchestrator.epoch,
        "orchestrator_address": None if sealed.orchestrator is None else sealed.orchestrator.address,
        "last": sealed.last,
        "end_of_run": sealed.end_of_run,
        "totals": None if sealed.totals is None else sealed.totals.to_json(),
    }
    connection.execute(_WRITE, row)
    if not sealed.end_of_run:
        runs.note_sealed(connection, run, sealed.step)
        return
    runs.change(connection, run, ended=True)
    events.record(
        connection,
        run.uid,
        now,
        kind="ended",
        attempt=sealed.attempt,
        step=run.sealed_step,
        detail=f"no step follows step {run.sealed_step}",
    )
