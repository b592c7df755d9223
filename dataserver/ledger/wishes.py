"""Who wants weights, and who takes them: requests, holds, the orchestrator's lease. What stamps are made of."""

from sqlalchemy import Connection, bindparam, delete, exists, insert, select, update

from dataserver.ledger import events, runs, schema
from dataserver.ledger.records import RunRow
from dataserver.ledger.rules import syncs as sync_rules
from dataserver.weight_sync import Hold, OrchestratorAddress, OrchestratorLease

# Made once, as those of `runs`.
_REQUESTED = exists().where(
    schema.sync_requests.c.run_uid == bindparam("uid"), schema.sync_requests.c.version == bindparam("version")
)
_HELD = exists().where(schema.holds.c.run_uid == bindparam("uid"), schema.holds.c.expire_time > bindparam("now"))
_OF_VERSION = select(_REQUESTED.label("requested"), _HELD.label("held"))
_IS_REQUESTED = select(_REQUESTED)


def request(connection: Connection, run: RunRow, version: int | None) -> None:
    """Note that the weights of `version`, or of the run's last (None), are wanted."""
    if version is None:
        runs.change(connection, run, last_requested=True)
        return
    if not is_requested(connection, run, version):
        connection.execute(insert(schema.sync_requests).values(run_uid=run.uid, version=version))


def is_requested(connection: Connection, run: RunRow, version: int) -> bool:
    """Whether somebody asked for the version by its number, ever."""
    return bool(connection.execute(_IS_REQUESTED, {"uid": run.uid, "version": version}).scalar_one())


def of_version(connection: Connection, run: RunRow, version: int, now: float) -> tuple[bool, bool]:
    """Whether the version was asked for by its number, and whether a hold lives."""
    row = connection.execute(_OF_VERSION, {"uid": run.uid, "version": version, "now": now}).one()
    return bool(row.requested), bool(row.held)


def hold(connection: Connection, run: RunRow, hold_id: str, expire_time: float, now: float) -> Hold:
    """Write or renew a hold, and forget those that expired."""
    holds = schema.holds
    connection.execute(delete(holds).where(holds.c.run_uid == run.uid, holds.c.expire_time <= now))
    key = (holds.c.run_uid == run.uid, holds.c.hold_id == hold_id)
    renewed = connection.execute(update(holds).where(*key).values(expire_time=expire_time))
    if not renewed.rowcount:
        connection.execute(insert(holds).values(run_uid=run.uid, hold_id=hold_id, expire_time=expire_time))
    return Hold(hold_id=hold_id, expire_time=expire_time)


def release(connection: Connection, run: RunRow, hold_id: str) -> None:
    """Forget a hold."""
    holds = schema.holds
    connection.execute(delete(holds).where(holds.c.run_uid == run.uid, holds.c.hold_id == hold_id))


def live_holds(connection: Connection, run: RunRow, now: float) -> list[Hold]:
    """Holds that live, by id."""
    holds = schema.holds
    rows = connection.execute(
        select(holds).where(holds.c.run_uid == run.uid, holds.c.expire_time > now).order_by(holds.c.hold_id)
    )
    return [Hold(hold_id=row.hold_id, expire_time=row.expire_time) for row in rows]


def lease(
    connection: Connection, run: RunRow, holder: str, address: str, *, expire_time: float, now: float
) -> OrchestratorLease:
    """Make `holder` the run's orchestrator, or renew its lease; the run's row is locked."""
    there = _read_lease(connection, run)
    sync_rules.refuse_live_orchestrator(run, there, holder, now)
    leased = sync_rules.leased(there, holder, address, expire_time=expire_time, now=now)
    table = schema.orchestrators
    values = {
        "epoch": leased.orchestrator.epoch,
        "holder": leased.holder,
        "address": leased.orchestrator.address,
        "expire_time": leased.expire_time,
    }
    if there is None:
        connection.execute(insert(table).values(run_uid=run.uid, **values))
    else:
        connection.execute(update(table).where(table.c.run_uid == run.uid).values(**values))
    if there is None or there.orchestrator != leased.orchestrator:
        detail = f"epoch {leased.orchestrator.epoch}: {holder} at {address}"
        events.record(connection, run.uid, now, kind="orchestrator_leased", step=run.sealed_step, detail=detail)
    return leased


def release_lease(connection: Connection, run: RunRow, holder: str, now: float) -> None:
    """End the lease if `holder` has it."""
    table = schema.orchestrators
    connection.execute(
        update(table)
        .where(table.c.run_uid == run.uid, table.c.holder == holder, table.c.expire_time > now)
        .values(expire_time=now)
    )


def live_lease(connection: Connection, run: RunRow, now: float) -> OrchestratorLease | None:
    """The lease of the orchestrator that lives."""
    there = _read_lease(connection, run)
    return there if there is not None and there.expire_time > now else None


def carrier(connection: Connection, run: RunRow, now: float, *, sync_weights: bool) -> OrchestratorAddress | None:
    """Whom a stamp names."""
    lease = live_lease(connection, run, now) if sync_weights else None
    return None if lease is None else lease.orchestrator


def _read_lease(connection: Connection, run: RunRow) -> OrchestratorLease | None:
    table = schema.orchestrators
    row = connection.execute(select(table).where(table.c.run_uid == run.uid)).one_or_none()
    if row is None:
        return None
    return OrchestratorLease(
        orchestrator=OrchestratorAddress(epoch=row.epoch, address=row.address),
        holder=row.holder,
        expire_time=row.expire_time,
    )
