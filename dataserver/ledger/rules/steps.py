"""Rules 6 to 11: what is sealed, acknowledged and committed.

Small pure functions over snapshots of rows. Each says which counterexample it closes: `tests/model` explores the
ledger's states with all of them, and takes each away once to find it. Callers reach them through
this module's name, so that a test can take one away.
"""

from collections.abc import Sequence

from dataserver.cursor import Cursor
from dataserver.errors import InvalidRequestError, PlanMismatchError, PreconditionError
from dataserver.ledger.records import RunRow
from dataserver.ledger.steps import ProposedSeal, Seal


def refuse_gap(run: RunRow, proposed: ProposedSeal) -> None:
    """Rules 6 and 9: a seal is conditional on the head being the step before; nothing follows the end.

    Else a server that lags behind or runs ahead seals a step whose predecessor nobody fixed.
    """
    if run.ended:
        raise PreconditionError(
            f"run {run.name!r} ended after step {run.sealed_step}: step {proposed.step} does not exist"
        )
    if proposed.step != run.sealed_step + 1:
        raise PreconditionError(
            f"step {proposed.step} of run {run.name!r} cannot be sealed: the next to be sealed is {run.sealed_step + 1}"
        )


def refuse_after_last(run: RunRow, head: Seal | None, proposed: ProposedSeal) -> None:
    """Rule 9: after the step that carried `last` only the end of the run is sealed.

    Else one rank ends with the last step, and the others wait for it in the next.
    """
    if head is not None and head.last and head.attempt == _number(run) and not proposed.end_of_run:
        raise PlanMismatchError(
            f"step {head.step} of run {run.name!r} was sealed as the last, and step {proposed.step} is proposed: "
            "the servers differ in code or stores"
        )


def refuse_settled_step(run: RunRow, seal: Seal) -> None:
    """Rule 4: a step at or before the base belongs to an earlier attempt and is not served again."""
    if seal.attempt != _number(run):
        raise PreconditionError(
            f"step {seal.step} of run {run.name!r} was sealed by attempt {seal.attempt} and is not part of attempt "
            f"{run.current_attempt}"
        )


def refuse_other_plan(run: RunRow, seal: Seal, proposed: ProposedSeal) -> None:
    """Rule 6: a replica that computes another plan than the sealed one refuses to serve.

    Else two ranks train on different cuts of one step: samples twice and never, and uneven rounds.
    """
    sealed = (seal.plan_digest, seal.planner_version, seal.end, seal.last, seal.end_of_run)
    if sealed == (proposed.plan_digest, proposed.planner_version, proposed.end, proposed.last, proposed.end_of_run):
        return
    raise PlanMismatchError(
        f"step {seal.step} of run {run.name!r} was sealed as {_plan(seal)}, this server computes {_plan(proposed)}: "
        "the servers differ in code or stores; run the same version of both everywhere",
        sealed_digest=seal.plan_digest,
        computed_digest=proposed.plan_digest,
        sealed_planner_version=seal.planner_version,
        computed_planner_version=proposed.planner_version,
    )


def sync_flag(*, requested: bool, held: bool) -> bool:
    """Rules 6 and 15: weights move after a step, or on an offer, whose version is requested, or while a hold lives.

    Computed once, in the seal's transaction; else a request between two ranks' opens gives them
    different flags, and one of them waits alone in a collective.
    """
    return requested or held


def consumed_step(acked_steps: Sequence[int], base_step: int) -> int:
    """Rule 10: a step is consumed when every world rank acknowledged it; `base_step` without an attempt.

    Else context-parallel siblings cover for one another, and a rank that hangs is not waited for.
    """
    return min(acked_steps, default=base_step)


def refuse_wrong_ack(run: RunRow, world_size: int, world_rank: int, step: int) -> None:
    """Rules 10 and 11: an ack comes from a rank of the attempt and for a step that was sealed.

    Else a confused rank counts as being ahead for ever, and pacing no longer waits for it.
    """
    if not 0 <= world_rank < world_size:
        raise InvalidRequestError(
            f"ack of world_rank {world_rank}: attempt {run.current_attempt} of run {run.name!r} has ranks 0 to "
            f"{world_size - 1}"
        )
    if step > run.sealed_step:
        raise InvalidRequestError(
            f"rank {world_rank} acknowledges step {step} of run {run.name!r}, but the last sealed step is "
            f"{run.sealed_step}"
        )


def committed_after(committed: Cursor, cursor: Cursor) -> Cursor:
    """Rule 5: within an attempt `committed` is monotone.

    Else a delayed duplicate of an older commit makes the newer checkpoint unknown.
    """
    return cursor if cursor.step > committed.step else committed


def refuse_off_course_commit(run: RunRow, cursor: Cursor, sealed: Cursor | None) -> None:
    """Rules 5 and 11: a committed cursor is the attempt's base or the end of one of its steps.

    Else a checkpoint that mixes one step's weights with another's cursor becomes a point to resume from.
    """
    if cursor == sealed:
        return
    if sealed is None:
        raise InvalidRequestError(
            f"commit of step {cursor.step} of run {run.name!r}: attempt {run.current_attempt} has sealed no such step; "
            f"its last is {run.sealed_step}"
        )
    raise InvalidRequestError(
        f"commit of step {cursor.step} of run {run.name!r}: the cursor is {cursor.to_json()}, the step was sealed to "
        f"end at {sealed.to_json()}; commit the cursor that came with the step"
    )


def _number(run: RunRow) -> int | None:
    """The current attempt's number."""
    return None if run.current_attempt is None else run.current_attempt.number


def _plan(seal: Seal | ProposedSeal) -> str:
    if seal.end_of_run:
        return "the end of the run"
    last = ", the last step" if seal.last else ""
    return (
        f"digest {seal.plan_digest} by planner {seal.planner_version}, ending at epoch {seal.end.epoch} position "
        f"{seal.end.position}{last}"
    )
