"""Rule 22: stages are appended, and everybody plans by all of them.

Small pure functions over snapshots of rows, reached through this module's name, as all rules.
"""

from typing import Any

from dataserver.cursor import Cursor
from dataserver.errors import (
    OutdatedPlanError,
    PreconditionError,
    RunConflictError,
    UnavailableError,
)
from dataserver.ledger.records import RunRow, StageRow
from dataserver.ledger.steps import ProposedSeal
from dataserver.planning.fingerprint import differing_fields
from dataserver.planning.stages import earliest_first_step
from dataserver.run_spec import RunSpec

# A run's row has them all, and servers plan by all of them.
MAX_STAGES = 100


def refuse_other_stage(run: RunRow, number: int, asked: StageRow) -> None:
    """Rule 22: a stage that is there stays what it is; the same one again is no fault."""
    there = run.later_stages[number - 1]
    if there.order_fingerprint == asked.order_fingerprint:
        return
    fields = differing_fields(there.order_fingerprint, asked.order_fingerprint)
    raise RunConflictError(
        f"stage {number} of run {run.name!r} begins with step {there.first_step} already, and with another order; they "
        f"differ in: {told_difference(fields, there.order, asked.order)}. Stages are never changed: append another one "
        "with a later first step",
        fields=",".join(fields),
    )


def refuse_early_stage(run: RunRow, head: Cursor, first_step: int) -> None:
    """Rule 22: a stage begins after all that is sealed, behind the window under way, and after the stages before it.

    Else some ranks train on a step of one order while others get it in another; or the samples that the rest of a
    window would have had are in no step.
    """
    earliest = earliest_first_step(head)
    newest = len(run.first_steps) - 1
    if newest + 1 >= MAX_STAGES:
        raise PreconditionError(f"run {run.name!r} has {MAX_STAGES} stages, which is the most: begin another run")
    if first_step <= run.first_steps[newest]:
        raise PreconditionError(
            f"run {run.name!r}: a stage cannot begin with step {first_step}, because stage {newest} begins with step "
            f"{run.first_steps[newest]}: stages follow each other, give a later first step"
        )
    if first_step < earliest:
        why = f"step {run.sealed_step} is sealed"
        if head.window is not None:
            why += f", inside a window of steps that are packed together up to step {earliest - 1}"
        raise PreconditionError(
            f"run {run.name!r}: a stage cannot begin with step {first_step}, because {why}: "
            f"give first step {earliest} or a later one",
            earliest_first_step=earliest,
        )


def refuse_lost_race(run: RunRow, before: str) -> None:
    """Rule 22: a stage's fingerprint covers the stages before it, so it is appended to those that it was made for."""
    if run.fingerprints[-1] != before:
        raise UnavailableError(f"run {run.name!r} got another stage meanwhile; trying again is safe")


def refuse_outdated_plan(run: RunRow, proposed: ProposedSeal) -> None:
    """Rule 22: a seal is conditional on the stages by which the step was planned.

    Else a server that has not heard of a stage seals its first step in the order before.
    """
    if proposed.stages != run.fingerprints[-1]:
        raise OutdatedPlanError(
            f"step {proposed.step} of run {run.name!r} was planned before stage {len(run.first_steps) - 1}, which "
            f"begins with step {run.first_steps[-1]}, was known"
        )


def refuse_other_order(run: RunRow, spec: RunSpec, order_fingerprint: str) -> None:
    """Rule 22: a name means one first stage for good: two orders under it could not share a cursor."""
    if run.order_fingerprint == order_fingerprint:
        return
    fields = differing_fields(run.order_fingerprint, order_fingerprint)
    ours, theirs = (order.model_dump(mode="json") for order in (run.read_spec().order, spec.order))
    raise RunConflictError(
        f"run {run.name!r} exists with another order; they differ in: {told_difference(fields, ours, theirs)}. To go "
        "on with this order from some step on, leave the spec as it was and append a stage (`dataserver run amend "
        f"{run.name}`); else give the new run another name, or delete the old one",
        fields=",".join(fields),
    )


def told_difference(fields: tuple[str, ...], there: dict[str, Any], asked: dict[str, Any]) -> str:
    """The fields in which two orders differ, with both values where the specs say them."""
    told = ", ".join(f"{f} (there: {there[f]}, asked: {asked[f]})" if f in there else f for f in fields)
    return told or "everything"
