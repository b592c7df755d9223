"""Rules 5 and 22: at which cursors a run can go on. Reached through this module's name, as all rules."""

from collections.abc import Sequence

from dataserver.cursor import Cursor
from dataserver.errors import ForeignCursorError, VersionNotFoundError
from dataserver.ledger.records import RunRow
from dataserver.planning import stages
from dataserver.planning.fingerprint import differing_fields


def refuse_foreign_cursor(run: RunRow, cursor: Cursor) -> None:
    """Rule 5: a cursor counts positions of one order and means nothing in another.

    Else a changed seed, store or length bound goes on at the same position: samples twice and never.
    """
    if cursor.stage >= len(run.fingerprints):
        raise ForeignCursorError(
            f"cursor at step {cursor.step} stands in stage {cursor.stage}, but the last stage of run {run.name!r} is "
            f"{len(run.fingerprints) - 1}: its ledger is new or an older copy; append the stages again that the run "
            f"had (`dataserver run amend {run.name}`)",
            fields="stages",
        )
    ours = run.fingerprints[cursor.stage]
    if cursor.order_fingerprint == ours:
        return
    fields = differing_fields(ours, cursor.order_fingerprint)
    values = run.later_stages[cursor.stage - 1].order if cursor.stage else run.read_spec().order.model_dump(mode="json")
    told = ", ".join(f"{field} (this run: {values[field]})" if field in values else field for field in fields)
    raise ForeignCursorError(
        f"cursor at step {cursor.step} belongs to another order than run {run.name!r}; they differ in: "
        f"{told or 'everything'}. Use the run that the checkpoint came from, or begin a run of another name",
        fields=",".join(fields),
        order_fingerprint=ours,
    )


def refuse_passed_stage(run: RunRow, cursor: Cursor) -> None:
    """Rule 22: no attempt begins behind the first step of a stage without having entered it.

    Else a checkpoint of a branch that was left goes on in an order that these steps no longer have: no server can plan.
    """
    stages.refuse_passed_stage(cursor, run.first_steps)


def cursor_by_version(run: RunRow, version: int, known: Cursor | None, nearest: Sequence[int]) -> Cursor:
    """Rule 5: a version is looked up, or refused; never "wherever the ledger stands".

    Else weights of version 0 go on at the ledger's step 2, and the samples before it are in no weights.
    """
    if known is not None:
        return known
    raise VersionNotFoundError(
        f"run {run.name!r} knows no cursor of version {version}; the nearest that it knows: "
        f"{', '.join(map(str, nearest))}. Resume with the checkpoint's own cursor, or by one of these",
        version=version,
        nearest=",".join(map(str, nearest)),
    )
