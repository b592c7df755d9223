"""Streams of ranks: opens, leases, acks."""

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, case, insert, select, update

from dataserver.ledger import runs, schema
from dataserver.ledger.interface import Attempt, Progress
from dataserver.ledger.records import OpenRequest, RunRow
from dataserver.ledger.rules import attempts as attempt_rules
from dataserver.ledger.rules import steps as step_rules


def open_stream(
    connection: Connection, run: RunRow, attempt: Attempt, request: OpenRequest, lease_expire_time: float
) -> None:
    """Check an open and note the rank as alive; `attempt` is the current one, the run's row is locked."""
    attempt_rules.refuse_mismatched_open(run, attempt, request)
    ranks = runs.read_ranks(connection, run)
    attempt_rules.refuse_repeated_step(run, ranks[request.world_rank], request)
    attempt_rules.refuse_other_dp_rank(run, attempt, ranks, request)
    connection.execute(
        update(schema.ranks)
        .where(schema.ranks.c.run_uid == run.uid, schema.ranks.c.world_rank == request.world_rank)
        .values(dp_rank=request.dp_rank)
    )
    streams = schema.streams
    counted = connection.execute(
        update(streams)
        .where(
            streams.c.run_uid == run.uid,
            streams.c.world_rank == request.world_rank,
            streams.c.server_id == request.server_id,
        )
        .values(open_streams=streams.c.open_streams + 1, lease_expire_time=lease_expire_time)
    )
    if not counted.rowcount:
        connection.execute(
            insert(streams).values(
                run_uid=run.uid,
                world_rank=request.world_rank,
                server_id=request.server_id,
                open_streams=1,
                lease_expire_time=lease_expire_time,
            )
        )


def renew(connection: Connection, server_id: str, lease_expire_time: float) -> None:
    """Push out the leases of a server's open streams."""
    streams = schema.streams
    connection.execute(
        update(streams)
        .where(streams.c.server_id == server_id, streams.c.open_streams > 0)
        .values(lease_expire_time=lease_expire_time)
    )


def close_stream(connection: Connection, run: RunRow, world_rank: int, server_id: str, now: float) -> None:
    """Count one stream of the rank down; the last one ends the lease."""
    streams = schema.streams
    connection.execute(
        update(streams)
        .where(
            streams.c.run_uid == run.uid,
            streams.c.world_rank == world_rank,
            streams.c.server_id == server_id,
            streams.c.open_streams > 0,
        )
        .values(
            open_streams=streams.c.open_streams - 1,
            lease_expire_time=case((streams.c.open_streams == 1, now), else_=streams.c.lease_expire_time),
        )
    )


def record_acks(connection: Connection, run: RunRow, attempt: int, acks: Mapping[int, int]) -> Progress:
    """Note acks, which never move down; the run's row is locked."""
    attempt_rules.refuse_stale_attempt(run, attempt)
    world_size = len(runs.read_ranks(connection, run))
    for world_rank, step in acks.items():
        step_rules.refuse_wrong_ack(run, world_size, world_rank, step)
    ranks = schema.ranks
    if acks:
        connection.execute(
            update(ranks)
            .where(
                ranks.c.run_uid == run.uid,
                ranks.c.world_rank == bindparam("rank"),
                ranks.c.acked_step < bindparam("step"),
            )
            .values(acked_step=bindparam("step")),
            [{"rank": world_rank, "step": step} for world_rank, step in acks.items()],
        )
    return progress(connection, run)


def progress(connection: Connection, run: RunRow) -> Progress:
    """How far the current attempt is. Raises `StaleAttemptError` when there is none."""
    attempt = attempt_rules.current_attempt(run)
    acked = connection.execute(
        select(schema.ranks.c.acked_step).where(schema.ranks.c.run_uid == run.uid).order_by(schema.ranks.c.world_rank)
    )
    return Progress(attempt=attempt, sealed_step=run.sealed_step, acked_steps=tuple(acked.scalars()))
