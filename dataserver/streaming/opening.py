"""The first message of a stream, checked."""

from dataclasses import dataclass

from dataserver.errors import InvalidRequestError
from dataserver.ledger.interface import AttemptKey
from dataserver.run_spec import check_run_name
from dataserver.streaming.credits import MOST_CREDITS
from dataserver.v1 import batch_service_pb2

# Those that the ledger issues are shorter.
LONGEST_ATTEMPT_ID = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a rank opens a stream with."""

    run: str
    attempt: int
    attempt_id: str
    world_rank: int
    dp_rank: int
    next_step: int
    credits: int

    @property
    def key(self) -> AttemptKey:
        """What names the attempt."""
        return AttemptKey(number=self.attempt, attempt_id=self.attempt_id)


def parse_opening(request: batch_service_pb2.StreamMicroBatchesRequest) -> Opening:
    """Raises `InvalidRequestError`, naming the field. What the attempt's row says is the ledger's to check."""
    kind = request.WhichOneof("message")
    if kind != "open":
        raise InvalidRequestError(f"the first message of a stream must be `open`, not {kind or 'empty'}")
    opened = request.open
    try:
        check_run_name(opened.run)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from error
    for name, value, least in (
        ("attempt", opened.attempt, 1),
        ("world_rank", opened.world_rank, 0),
        ("dp_rank", opened.dp_rank, 0),
        ("next_step", opened.next_step, 1),
    ):
        if value < least:
            raise InvalidRequestError(f"open.{name} = {value}: it is at least {least}")
    check_attempt_id("open.attempt_id", opened.attempt_id)
    if not 1 <= opened.credits <= MOST_CREDITS:
        raise InvalidRequestError(f"open.credits = {opened.credits}: give 1 to {MOST_CREDITS}")
    return Opening(
        run=opened.run,
        attempt=opened.attempt,
        attempt_id=opened.attempt_id,
        world_rank=opened.world_rank,
        dp_rank=opened.dp_rank,
        next_step=opened.next_step,
        credits=opened.credits,
    )


def check_attempt_id(field: str, attempt_id: str) -> str:
    """`attempt_id` if it may be one. Raises `InvalidRequestError`."""
    if not 1 <= len(attempt_id) <= LONGEST_ATTEMPT_ID:
        raise InvalidRequestError(
            f"{field} has {len(attempt_id)} characters: give the attempt_id that `BeginAttempt` returned"
        )
    return attempt_id
