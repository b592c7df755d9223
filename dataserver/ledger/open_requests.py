"""Requests that can still be met, among all that were ever made."""

from sqlalchemy import ColumnElement, Connection, and_, exists, or_, select

from dataserver.ledger import schema
from dataserver.ledger.records import RunRow
from dataserver.ledger.rules import requests as request_rules
from dataserver.weight_sync import PolicyVersion


def open_requests(
    connection: Connection, run: RunRow, prospect: request_rules.Prospect, landed: PolicyVersion | None, limit: int
) -> list[int]:
    """Versions that were asked for by number and may yet land, ascending, at most `limit`.

    `landed`: the newest version that did. None of those before it can land any more: an attempt hands its versions over
    in order, and whatever a new attempt brings is above what it left. So old requests cost nothing here.
    """
    requests = schema.sync_requests
    version, head = requests.c.version, prospect.head
    is_open = or_(
        version >= (head if request_rules.is_open(prospect, head) else head + 1),
        and_(version < head, _is_pending(run, version)),
    )
    query = select(version).where(requests.c.run_uid == run.uid, is_open)
    if landed is not None:
        query = query.where(version > landed.number)
    if prospect.end is not None:
        query = query.where(version <= prospect.end)
    return list(connection.execute(query.order_by(version).limit(limit)).scalars())


def _is_pending(run: RunRow, version: ColumnElement[int]) -> ColumnElement[bool]:
    """What `offers.is_pending` says of versions before the highest, in SQL."""
    seals, offers, syncs = schema.seals, schema.offers, schema.syncs
    stamped = exists().where(
        seals.c.run_uid == run.uid,
        seals.c.step == version,
        seals.c.attempt == (0 if run.current_attempt is None else run.current_attempt.number),
        seals.c.sync_weights,
    )
    offered = exists().where(
        offers.c.run_uid == run.uid, offers.c.number == 0, offers.c.version_number == version, offers.c.sync_weights
    )
    reported = (syncs.c.run_uid == run.uid, syncs.c.number == version)
    return or_(
        and_(stamped, ~exists().where(*reported)),
        and_(offered, ~exists().where(*reported, syncs.c.offers > 0)),
    )
