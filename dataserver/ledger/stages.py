"""Stages: how a run is amended. They are part of the run's row, so that whoever locks it has them all."""

import json
from dataclasses import asdict

from sqlalchemy import Connection

from dataserver.ledger import arguments, commits, events, runs
from dataserver.ledger.interface import RunStage
from dataserver.ledger.records import RunRow, StageRow
from dataserver.ledger.rules import stages as stage_rules


def amend(connection: Connection, run: RunRow, added: StageRow, before: str, *, now: float, lease_s: float) -> bool:
    """Append a stage; False if it is there already. The run's row is locked."""
    for number, first_step in enumerate(run.first_steps[1:], 1):
        if first_step == added.first_step:
            stage_rules.refuse_other_stage(run, number, added)
            return False
    head, _ = commits.cursor_of(connection, run, run.sealed_step)
    stage_rules.refuse_early_stage(run, head, added.first_step)
    stage_rules.refuse_lost_race(run, before)
    order = added.read().stage.order
    attempt = runs.read_attempt(connection, run, lease_s)
    for batch in (run.read_spec().batch, *([] if attempt is None else [attempt.batch])):
        arguments.check_batch_fits([order], batch)
    runs.change(connection, run, later_stages=to_json((*run.later_stages, added)))
    events.record(
        connection,
        run.uid,
        now,
        kind="amended",
        step=added.first_step,
        detail=f"stage {len(run.first_steps)} begins with step {added.first_step}, order {added.order_fingerprint}",
    )
    return True


def to_json(later_stages: tuple[StageRow, ...]) -> str:
    """The stages after the first, as a run's row holds them."""
    return json.dumps([asdict(stage) for stage in later_stages])


def row_of(added: RunStage) -> StageRow:
    """A stage as a run's row holds it."""
    return StageRow(
        first_step=added.stage.first_step,
        order_fingerprint=added.order_fingerprint,
        epoch_samples=added.epoch_samples,
        order=added.stage.order.model_dump(mode="json"),
    )
