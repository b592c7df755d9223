"""The first message of a stream, checked."""

from dataclasses import dataclass

from dataserver.cursor import Cursor
from dataserver.errors import InvalidRequestError
from dataserver.eval_spec import EvalSpec
from dataserver.ledger.steps import AttemptKey
from dataserver.planning.check import MAX_DP_WORLD_SIZE
from dataserver.run_spec import check_run_name
from dataserver.streaming.credits import MOST_CREDITS
from dataserver.v1 import batch_service_pb2
from dataserver.wire.evals import eval_spec_from_proto
from dataserver.wire.messages import cursor_from_proto

# Fields that only the other purpose has a use for.
EVAL_FIELDS = ("eval", "dp_world_size", "begin")
TRAIN_FIELDS = ("run", "attempt", "attempt_id", "world_rank", "next_step", "takes_offers", "acked_offer")

# Those that the ledger issues are shorter.
LONGEST_ATTEMPT_ID = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a rank opens the stream of an attempt with."""

    run: str
    attempt: int
    attempt_id: str
    world_rank: int
    dp_rank: int
    next_step: int
    credits: int
    takes_offers: bool = False
    acked_offer: int = 0

    @property
    def key(self) -> AttemptKey:
        """What names the attempt."""
        return AttemptKey(number=self.attempt, attempt_id=self.attempt_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOpening:
    """What a rank opens the stream of a held-out store with. `begin` is None at the first row."""

    spec: EvalSpec
    dp_rank: int
    dp_world_size: int
    begin: Cursor | None
    credits: int


def parse_opening(request: batch_service_pb2.StreamMicroBatchesRequest) -> Opening | EvalOpening:
    """Raises `InvalidRequestError`, naming the field. What the attempt's row says is the ledger's to check."""
    kind = request.WhichOneof("message")
    if kind != "open":
        raise InvalidRequestError(f"the first message of a stream must be `open`, not {kind or 'empty'}")
    opened = request.open
    if not 1 <= opened.credits <= MOST_CREDITS:
        raise InvalidRequestError(f"open.credits = {opened.credits}: give 1 to {MOST_CREDITS}")
    if opened.purpose == batch_service_pb2.PURPOSE_TRAIN:
        _refuse_fields(opened, EVAL_FIELDS)
        return _attempt_opening(opened)
    if opened.purpose == batch_service_pb2.PURPOSE_EVAL:
        _refuse_fields(opened, TRAIN_FIELDS)
        return _eval_opening(opened)
    raise InvalidRequestError(f"open.purpose = {opened.purpose}: give PURPOSE_TRAIN or PURPOSE_EVAL")


def _refuse_fields(opened: batch_service_pb2.Open, fields: tuple[str, ...]) -> None:
    given = {field.name for field, _ in opened.ListFields()}
    if foreign := [field for field in fields if field in given]:
        purpose = batch_service_pb2.Purpose.Name(opened.purpose)
        raise InvalidRequestError(f"open.{foreign[0]} does not go with {purpose}: leave it out")


def _eval_opening(opened: batch_service_pb2.Open) -> EvalOpening:
    if not opened.HasField("eval"):
        raise InvalidRequestError("open.eval is missing: say which store an EVAL stream reads")
    if not 1 <= opened.dp_world_size <= MAX_DP_WORLD_SIZE:
        raise InvalidRequestError(f"open.dp_world_size = {opened.dp_world_size}: give 1 to {MAX_DP_WORLD_SIZE}")
    if not 0 <= opened.dp_rank < opened.dp_world_size:
        raise InvalidRequestError(f"open.dp_rank = {opened.dp_rank}: give 0 to {opened.dp_world_size - 1}")
    return EvalOpening(
        spec=eval_spec_from_proto(opened.eval),
        dp_rank=opened.dp_rank,
        dp_world_size=opened.dp_world_size,
        begin=cursor_from_proto(opened.begin) if opened.HasField("begin") else None,
        credits=opened.credits,
    )


def _attempt_opening(opened: batch_service_pb2.Open) -> Opening:
    try:
        check_run_name(opened.run)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from error
    for name, value, least in (
        ("attempt", opened.attempt, 1),
        ("world_rank", opened.world_rank, 0),
        ("dp_rank", opened.dp_rank, 0),
        ("next_step", opened.next_step, 1),
        ("acked_offer", opened.acked_offer, 0),
    ):
        if value < least:
            raise InvalidRequestError(f"open.{name} = {value}: it is at least {least}")
    check_attempt_id("open.attempt_id", opened.attempt_id)
    return Opening(
        run=opened.run,
        attempt=opened.attempt,
        attempt_id=opened.attempt_id,
        world_rank=opened.world_rank,
        dp_rank=opened.dp_rank,
        next_step=opened.next_step,
        credits=opened.credits,
        takes_offers=opened.takes_offers,
        acked_offer=opened.acked_offer,
    )


def check_attempt_id(field: str, attempt_id: str) -> str:
    """`attempt_id` if it may be one. Raises `InvalidRequestError`."""
    if not 1 <= len(attempt_id) <= LONGEST_ATTEMPT_ID:
        raise InvalidRequestError(
            f"{field} has {len(attempt_id)} characters: give the attempt_id that `BeginAttempt` returned"
        )
    return attempt_id
