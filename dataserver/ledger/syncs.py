"""Requests answered, and all about a run's syncs in one view."""

from sqlalchemy import Connection

from dataserver.ledger import offers, reports, runs, seals, wishes
from dataserver.ledger.open_requests import open_requests
from dataserver.ledger.records import RunRow
from dataserver.ledger.rules import requests as request_rules
from dataserver.ledger.rules import steps as step_rules
from dataserver.weight_sync import RequestOutcome, SyncAnswer, SyncState

# What a state shows, however long the run is.
_SHOWN_SYNCS = 100
_SHOWN_REQUESTS = 1000


def request(connection: Connection, run: RunRow, version: int | None, *, at_or_after: bool, now: float) -> SyncAnswer:
    """Answer a request and write it down, unless it comes too late; the run's row is locked."""
    numbers = {run.sealed_step} if version is None else {run.sealed_step, version}
    prospect = _prospect(connection, run, numbers, now)
    if version is None:
        answer = request_rules.answer_last(run, prospect)
        wishes.request(connection, run, None)
    else:
        answer = request_rules.answer(run, prospect, version, at_or_after=at_or_after)
        if answer.outcome is not RequestOutcome.ALREADY_SEALED:
            wishes.request(connection, run, answer.version)
    return answer


def state(connection: Connection, run: RunRow, now: float) -> SyncState:
    """The run's syncs as they stand."""
    ranks = runs.read_ranks(connection, run)
    prospect = _prospect(connection, run, {run.sealed_step}, now)
    landed = reports.newest_landed(connection, run)
    acked = [rank.acked_step for rank in ranks]
    return SyncState(
        run=run.name,
        attempt=0 if run.current_attempt is None else run.current_attempt.number,
        sealed_step=run.sealed_step,
        consumed_step=step_rules.consumed_step(acked, run.committed.step),
        requested=tuple(open_requests(connection, run, prospect, landed, _SHOWN_REQUESTS)),
        last_requested=run.last_requested and not (prospect.last_sealed and run.sealed_step in prospect.landed),
        last_sealed=prospect.last_sealed,
        ended=run.ended,
        shutdown_deadline=run.shutdown_deadline,
        holds=tuple(wishes.live_holds(connection, run, now)),
        lease=wishes.live_lease(connection, run, now),
        landed=landed,
        syncs=tuple(reports.newest(connection, run, _SHOWN_SYNCS)),
        max_steps=prospect.max_steps,
    )


def _prospect(connection: Connection, run: RunRow, numbers: set[int], now: float) -> request_rules.Prospect:
    ranks = runs.read_ranks(connection, run)
    taken = offers.takes_offers(ranks)
    last_sealed = _last_sealed(connection, run)
    expired = run.shutdown_deadline is not None and now >= run.shutdown_deadline
    landed = {number for number in numbers if reports.has_landed(connection, run, number)}
    return request_rules.Prospect(
        head=run.sealed_step,
        opening=taken is not False and offers.read(connection, run, 0) is None and _at_base(connection, run),
        last_sealed=last_sealed,
        over=run.ended or expired or (last_sealed and taken is False),
        landed=landed,
        pending={number for number in numbers - landed if offers.is_pending(connection, run, number)},
        max_steps=_max_steps(connection, run),
    )


def _last_sealed(connection: Connection, run: RunRow) -> bool:
    """Whether the run ends with the highest sealed step, as far as is known."""
    if run.ended or run.shutdown_deadline is not None:
        return True
    head = seals.read_own_seal(connection, run, run.sealed_step)
    return head is not None and head.last


def _at_base(connection: Connection, run: RunRow) -> bool:
    """Whether the next seal is the current attempt's first, or the next attempt's."""
    return run.current_attempt is None or seals.read_own_seal(connection, run, run.sealed_step) is None


def _max_steps(connection: Connection, run: RunRow) -> int | None:
    attempt = runs.read_attempt(connection, run, 0.0)
    return (run.read_spec().batch if attempt is None else attempt.batch).max_steps
