"""Streams of ranks: opens, leases, acks."""

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from dataserver.ledger import offers, runs, schema
from dataserver.ledger.interface import Attempt
from dataserver.ledger.records import OpenRequest, RunRow
from dataserver.ledger.rules import attempts as attempt_rules
from dataserver.ledger.rules import offers as offer_rules
from dataserver.ledger.rules import steps as step_rules
from dataserver.ledger.steps import AttemptKey, Progress

# Made once, as those of `runs`.
_ACKED = (
    select(schema.ranks.c.acked_step)
    .where(schema.ranks.c.run_uid == bindparam("uid"))
    .order_by(schema.ranks.c.world_rank)
)
_ACK = (
    update(schema.ranks)
    .where(
        schema.ranks.c.run_uid == bindparam("uid"),
        schema.ranks.c.world_rank == bindparam("rank"),
        schema.ranks.c.acked_step < bindparam("step"),
    )
    .values(acked_step=bindparam("step"))
)

# Within what any database takes as parameters of one statement.
_IDS_PER_STATEMENT = 500


def open_stream(
    connection: Connection, run: RunRow, attempt: Attempt, request: OpenRequest, *, now: float, lease_s: float
) -> None:
    """Check an open and note the rank as alive; `attempt` is the current one, the run's row is locked."""
    lease_expire_time = now + lease_s
    attempt_rules.refuse_mismatched_open(run, attempt, request)
    ranks = runs.read_ranks(connection, run)
    attempt_rules.refuse_repeated_step(run, ranks[request.world_rank], request)
    attempt_rules.refuse_other_dp_rank(run, attempt, ranks, request)
    offer_rules.refuse_mixed_offers(run, ranks, request)
    offer_rules.refuse_skipped_offer(run, request, offers.last_number(connection, run))
    connection.execute(
        update(schema.ranks)
        .where(schema.ranks.c.run_uid == run.uid, schema.ranks.c.world_rank == request.world_rank)
        .values(dp_rank=request.dp_rank, takes_offers=request.takes_offers)
    )
    if request.takes_offers:
        offers.seal_opening(connection, run, attempt.base.step, now)
    streams = schema.streams
    key = streams.c.stream_id == request.stream_id
    if connection.execute(select(streams.c.stream_id).where(key)).one_or_none() is not None:
        _push_out(connection, (request.stream_id,), lease_expire_time)
        return
    connection.execute(
        insert(streams).values(
            stream_id=request.stream_id,
            run_uid=run.uid,
            world_rank=request.world_rank,
            closed=False,
            lease_expire_time=lease_expire_time,
        )
    )


def renew(connection: Connection, stream_ids: Collection[str], lease_expire_time: float) -> None:
    """Push out the leases of exactly these streams: whatever no server holds lapses by itself."""
    ids = sorted(stream_ids)
    for begin in range(0, len(ids), _IDS_PER_STATEMENT):
        _push_out(connection, ids[begin : begin + _IDS_PER_STATEMENT], lease_expire_time)


def close_stream(connection: Connection, stream_id: str, now: float) -> None:
    """End the lease of a stream, and forget those of its rank that were closed before."""
    streams = schema.streams
    row = connection.execute(
        select(streams.c.run_uid, streams.c.world_rank).where(streams.c.stream_id == stream_id)
    ).one_or_none()
    if row is None:
        return
    connection.execute(
        delete(streams).where(
            streams.c.run_uid == row.run_uid,
            streams.c.world_rank == row.world_rank,
            streams.c.closed,
            streams.c.stream_id != stream_id,
        )
    )
    connection.execute(
        update(streams)
        .where(streams.c.stream_id == stream_id, ~streams.c.closed)
        .values(closed=True, lease_expire_time=now)
    )


def record_acks(connection: Connection, run: RunRow, attempt: AttemptKey, acks: Mapping[int, int]) -> Progress:
    """Note acks, which never move down; the run's row is locked."""
    attempt_rules.refuse_stale_attempt(run, attempt)
    world_size = len(_acked_steps(connection, run))
    for world_rank, step in acks.items():
        step_rules.refuse_wrong_ack(run, world_size, world_rank, step)
    if acks:
        connection.execute(
            _ACK, [{"uid": run.uid, "rank": world_rank, "step": step} for world_rank, step in acks.items()]
        )
    return progress(connection, run)


def progress(connection: Connection, run: RunRow) -> Progress:
    """How far the current attempt is. Raises `StaleAttemptError` when there is none."""
    attempt = attempt_rules.current_attempt(run)
    return Progress(attempt=attempt, sealed_step=run.sealed_step, acked_steps=_acked_steps(connection, run))


def _acked_steps(connection: Connection, run: RunRow) -> tuple[int, ...]:
    return tuple(connection.execute(_ACKED, {"uid": run.uid}).scalars())


def _push_out(connection: Connection, stream_ids: Collection[str], lease_expire_time: float) -> None:
    streams = schema.streams
    connection.execute(
        update(streams)
        .where(streams.c.stream_id.in_(stream_ids), ~streams.c.closed)
        .values(lease_expire_time=lease_expire_time)
    )
