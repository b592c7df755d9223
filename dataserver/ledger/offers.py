"""Offers: weights outside a step, and what follows the last one."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, func, insert, select, update

from dataserver.ledger import events, reports, runs, schema, seals, wishes
from dataserver.ledger.records import RankRow, RunRow
from dataserver.ledger.rules import attempts as attempt_rules
from dataserver.ledger.rules import offers as offer_rules
from dataserver.ledger.rules import stages as stage_rules
from dataserver.ledger.rules import steps as step_rules
from dataserver.ledger.steps import AttemptKey, ProposedSeal, Seal
from dataserver.weight_sync import Offer, OrchestratorAddress, PolicyVersion, ShutdownHold


def seal_opening(connection: Connection, run: RunRow, number: int, now: float) -> None:
    """Seal the opening offer of the current attempt, whose base is version `number`, unless it is there."""
    if read(connection, run, 0) is not None:
        return
    landed = reports.has_landed(connection, run, number)
    requested, held = wishes.of_version(connection, run, number, now)
    flag = step_rules.sync_flag(requested=requested and not landed, held=held)
    _write(connection, run, 0, reports.newest_version(connection, run, number), sync_weights=flag, now=now)


def read(connection: Connection, run: RunRow, number: int) -> Offer | None:
    """An offer of the current attempt."""
    offers = schema.offers
    row = connection.execute(select(offers).where(offers.c.run_uid == run.uid, offers.c.number == number)).one_or_none()
    if row is None:
        return None
    orchestrator = None
    if row.orchestrator_epoch is not None:
        orchestrator = OrchestratorAddress(epoch=row.orchestrator_epoch, address=row.orchestrator_address)
    return Offer(
        number=row.number,
        version=PolicyVersion(attempt=row.version_attempt, number=row.version_number),
        sync_weights=row.sync_weights,
        orchestrator=orchestrator,
    )


def record_acks(connection: Connection, run: RunRow, attempt: AttemptKey, acks: Mapping[int, int]) -> None:
    """Note acks, which never move down; the run's row is locked."""
    attempt_rules.refuse_stale_attempt(run, attempt)
    ranks, offered = runs.read_ranks(connection, run), last_number(connection, run)
    for world_rank, offer in acks.items():
        offer_rules.refuse_wrong_offer_ack(run, ranks, world_rank, offer, offered)
    table = schema.ranks
    if acks:
        connection.execute(
            update(table)
            .where(
                table.c.run_uid == run.uid,
                table.c.world_rank == bindparam("rank"),
                table.c.acked_offer < bindparam("offer"),
            )
            .values(acked_offer=bindparam("offer")),
            [{"rank": world_rank, "offer": offer} for world_rank, offer in acks.items()],
        )


def conclude(
    connection: Connection,
    run: RunRow,
    attempt: AttemptKey,
    end: ProposedSeal,
    *,
    after: int,
    hold_s: float,
    now: float,
) -> Offer | Seal | ShutdownHold:
    """Seal the next offer or the end, or say what they wait for; the run's row is locked."""
    attempt_rules.refuse_stale_attempt(run, attempt)
    stage_rules.refuse_outdated_plan(run, end)
    offer = read(connection, run, after + 1)
    if offer is not None:
        return offer
    ranks = runs.read_ranks(connection, run)
    if run.ended or not takes_offers(ranks):
        return seals.seal(connection, run, attempt, end, now)
    step_rules.refuse_gap(run, end)
    behind = [rank.world_rank for rank in ranks if rank.acked_step < run.sealed_step]
    if behind:
        return ShutdownHold(reason=f"ranks {behind[:8]} to acknowledge step {run.sealed_step}", deadline=None)
    if run.shutdown_deadline is None:
        runs.change(connection, run, shutdown_deadline=now + hold_s)
    closing = _closing(connection, run, deadline=run.shutdown_deadline or now + hold_s, now=now)
    if offer_rules.may_end(closing, now):
        if closing.wanted:
            _record_expired(connection, run, attempt, closing, now)
        return seals.seal(connection, run, attempt, end, now)
    if waits := offer_rules.waits_for(closing, ranks, now):
        return ShutdownHold(reason=waits, deadline=closing.deadline)
    return _write(connection, run, closing.offered + 1, closing.version, sync_weights=True, now=now)


def takes_offers(ranks: Sequence[RankRow]) -> bool | None:
    """Whether the ranks of the attempt take offers; None before any of them said so."""
    said = [rank.takes_offers for rank in ranks if rank.takes_offers is not None]
    return any(said) if said else None


def last_number(connection: Connection, run: RunRow) -> int:
    """The newest offer of the current attempt; 0 also before the opening one."""
    offers = schema.offers
    query = select(func.coalesce(func.max(offers.c.number), 0)).where(offers.c.run_uid == run.uid)
    return int(connection.execute(query).scalar_one())


def is_pending(connection: Connection, run: RunRow, number: int) -> bool:
    """Whether the newest chance of a version is stamped, and no report of a sync came since."""
    offered = last_number(connection, run) if number == run.sealed_step else 0
    seal = seals.read_own_seal(connection, run, number)
    if seal is not None and not offered:
        return seal.sync_weights and not reports.has_report(connection, run, number)
    offer = read(connection, run, offered)
    stamped = offer is not None and offer.version.number == number and offer.sync_weights
    return stamped and not reports.has_report(connection, run, number, since_offer=offered)


def _closing(connection: Connection, run: RunRow, *, deadline: float, now: float) -> offer_rules.Closing:
    number, offered = run.sealed_step, last_number(connection, run)
    requested, held = wishes.of_version(connection, run, number, now)
    wanted = offer_rules.is_wanted(
        requested=requested or run.last_requested,
        held=held,
        landed=reports.has_landed(connection, run, number),
    )
    offers = schema.offers
    times = select(offers.c.seal_time).where(offers.c.run_uid == run.uid, offers.c.number == offered)
    return offer_rules.Closing(
        version=reports.newest_version(connection, run, number),
        wanted=wanted,
        offered=offered,
        offer_time=connection.execute(times).scalar_one(),
        pending=is_pending(connection, run, number),
        deadline=deadline,
        led=wishes.live_lease(connection, run, now) is not None,
    )


def _write(
    connection: Connection, run: RunRow, number: int, version: PolicyVersion, *, sync_weights: bool, now: float
) -> Offer:
    orchestrator = wishes.carrier(connection, run, now, sync_weights=sync_weights)
    connection.execute(
        insert(schema.offers).values(
            run_uid=run.uid,
            number=number,
            version_attempt=version.attempt,
            version_number=version.number,
            sync_weights=sync_weights,
            orchestrator_epoch=None if orchestrator is None else orchestrator.epoch,
            orchestrator_address=None if orchestrator is None else orchestrator.address,
            seal_time=now,
        )
    )
    return Offer(number=number, version=version, sync_weights=sync_weights, orchestrator=orchestrator)


def _record_expired(
    connection: Connection, run: RunRow, attempt: AttemptKey, closing: offer_rules.Closing, now: float
) -> None:
    detail = f"version {closing.version} was wanted until the end and did not land, after {closing.offered} offers"
    events.record(
        connection,
        run.uid,
        now,
        kind="sync_expired",
        attempt=attempt.number,
        step=run.sealed_step,
        detail=detail,
    )
