"""Arguments that no state of a run could make right: `InvalidRequestError`, `InvalidSpecError`."""

from collections.abc import Sequence

from dataserver.errors import InvalidRequestError, InvalidSpecError
from dataserver.ledger.records import BeginRequest, OpenRequest
from dataserver.ledger.steps import ProposedSeal
from dataserver.run_spec import BatchSpec, OrderSpec, check_fits, check_run_name

# A row per rank is written with every attempt.
MAX_WORLD_SIZE = 65_536
MAX_NAME_LENGTH = 256
MAX_STREAM_ID_LENGTH = 64
MAX_URI_LENGTH = 4096
# What a 64-bit column takes.
MAX_STEP = 2**63 - 1


def check_name(name: str) -> None:
    """A new run's name."""
    try:
        check_run_name(name)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from error


def check_label(field: str, value: str, limit: int, *, empty: bool = False) -> None:
    """Refuse text that is empty (unless `empty`), too long, or not storable."""
    if not value and not empty:
        raise InvalidRequestError(f"{field} is empty: give a non-empty text of at most {limit} characters")
    if len(value) > limit:
        raise InvalidRequestError(f"{field} has {len(value)} characters, at most {limit} are allowed: {value[:80]!r}…")
    if "\0" in value or not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequestError(f"{field} {value[:80]!r} is not Unicode text") from error
        if "\0" in value:
            raise InvalidRequestError(f"{field} {value[:80]!r} holds a NUL character")


def check_number(field: str, value: int, low: int, high: int = MAX_STEP) -> None:
    """Refuse a number outside `low` to `high`, both inclusive."""
    if not low <= value <= high:
        raise InvalidRequestError(f"{field} = {value} is out of range: give {low} to {high}")


def check_begin(request: BeginRequest) -> None:
    """Sizes, holder, and whether cursor and version go with the mode and with each other."""
    check_number("world_size", request.world_size, 1, MAX_WORLD_SIZE)
    check_number("dp_world_size", request.dp_world_size, 1, request.world_size)
    if request.world_size % request.dp_world_size:
        raise InvalidRequestError(
            f"dp_world_size = {request.dp_world_size} does not divide world_size = {request.world_size}"
        )
    check_label("holder", request.holder, MAX_NAME_LENGTH)
    if request.resume:
        _check_resume(request)
    elif request.cursor is not None or request.version not in (None, 0):
        raise InvalidRequestError(
            "START begins at version 0 and takes no cursor; to go on from a checkpoint begin with RESUME"
        )


def _check_resume(request: BeginRequest) -> None:
    if request.version is not None:
        check_number("version", request.version, 0)
    if request.cursor is None:
        if request.version is None:
            raise InvalidRequestError(
                "RESUME needs the checkpoint's cursor, or the version of the weights; "
                "where the ledger stands says nothing about the weights that the trainer holds"
            )
        return
    cursor = request.cursor
    for field in ("stage", "step", "epoch", "position"):
        check_number(f"cursor.{field}", getattr(cursor, field), 0)
    if request.version is not None and request.version != cursor.step:
        raise InvalidRequestError(
            f"version = {request.version} contradicts the cursor, which belongs to version {cursor.step}: "
            "leave the version out, or give the cursor's step"
        )


def check_batch_fits(orders: Sequence[OrderSpec], batch: BatchSpec) -> None:
    """A batch spec must hold the longest sample of each stage."""
    try:
        for order in orders:
            check_fits(order, batch)
    except ValueError as error:
        raise InvalidSpecError(f"the attempt's batch spec does not fit the run's order: {error}") from error


def check_open(request: OpenRequest) -> None:
    """Ranks and steps that no attempt has."""
    check_number("world_rank", request.world_rank, 0, MAX_WORLD_SIZE - 1)
    check_number("dp_rank", request.dp_rank, 0, MAX_WORLD_SIZE - 1)
    check_number("next_step", request.next_step, 1)
    check_label("stream_id", request.stream_id, MAX_STREAM_ID_LENGTH)


def check_seal(proposed: ProposedSeal) -> None:
    """The end cursor belongs to the step; after the end of the run it stands where the last step left it."""
    check_number("step", proposed.step, 1)
    expected = proposed.step - 1 if proposed.end_of_run else proposed.step
    if proposed.end.step != expected:
        what = "the end of the run at step" if proposed.end_of_run else "step"
        raise InvalidRequestError(f"a seal of {what} {proposed.step} ends at cursor step {proposed.end.step}")
