"""The ledger without one of its rules on syncs."""

from typing import Any

from ledgermodel.variants import Variant, around, without
from sqlalchemy import delete

from dataserver.ledger import offers, reports, schema
from dataserver.ledger.rules import offers as offer_rules
from dataserver.ledger.rules import requests as request_rules
from dataserver.ledger.rules import syncs as sync_rules
from dataserver.weight_sync import RequestOutcome, SyncAnswer
from syncmodel.scenarios import CONTRADICTION, DEEP, GONE, HELD, LAST, LEASES, MIXED, REQUESTS, WRONG_ACK

MEET = "ranks meet in one collective with"
LEFT = "for one that has left after the end"
LACKS = "its last version was asked for, and engines lack it"
AGAIN = "is offered again, though engines serve it"


def _written_down(_original: Any, _run: Any, _prospect: Any, version: int, **_how: bool) -> SyncAnswer:
    """Every request is accepted."""
    return SyncAnswer(outcome=RequestOutcome.ACCEPTED, version=version)


def _offered_anew(original: Any, connection: Any, run: Any, number: int, now: float) -> None:
    """Each open computes the opening offer for itself."""
    connection.execute(delete(schema.offers).where(schema.offers.c.run_uid == run.uid, schema.offers.c.number == 0))
    original(connection, run, number, now)


def _without_end(_original: Any, closing: Any, _now: float) -> bool:
    return not closing.wanted


VARIANTS = (
    Variant(
        rule=13,
        name="a request is written down, whenever it comes",
        change=around(request_rules, "answer", _written_down),
        scenario=REQUESTS,
        fault=r"version \d was promised, and the run ends without",
    ),
    Variant(
        rule=13,
        name="a version that the run does not reach is accepted",
        change=without(request_rules, "refuse_beyond_end"),
        scenario=REQUESTS,
        fault="version 2 was promised, and the run ends without",
    ),
    Variant(
        rule=14,
        name="a late report counts for the version that took its number",
        change=without(sync_rules, "refuse_dropped_version"),
        scenario=DEEP["a crash and a failed sync"],
        fault=LACKS,
    ),
    Variant(
        rule=14,
        name="what landed survives a rewind behind it",
        change=without(reports, "drop"),
        scenario=DEEP["a crash and a failed sync"],
        fault=LACKS,
    ),
    Variant(
        rule=14,
        name="the later report of a sync wins",
        change=without(sync_rules, "wins", instead=True),
        scenario=CONTRADICTION,
        fault=AGAIN,
    ),
    Variant(
        rule=15,
        name="each rank takes offers as it likes",
        change=without(offer_rules, "refuse_mixed_offers"),
        scenario=MIXED,
        fault=f"{LEFT}|{MEET}|dead end",
    ),
    Variant(
        rule=15,
        name="the opening offer is made anew for each rank",
        change=around(offers, "seal_opening", _offered_anew),
        scenario=HELD,
        fault=rf"{MEET} .*sync_weights=False.* and .*sync_weights=True",
    ),
    Variant(
        rule=15,
        name="a rank acknowledges an offer that was never made",
        change=without(offer_rules, "refuse_wrong_offer_ack"),
        scenario=WRONG_ACK,
        fault="is made while a rank is not done with the one before",
    ),
    Variant(
        rule=15,
        name="the run ends while its last version is wanted",
        change=without(offer_rules, "may_end", instead=True),
        scenario=LAST,
        fault=LACKS,
    ),
    Variant(
        rule=15,
        name="offers have no deadline",
        change=around(offer_rules, "may_end", _without_end),
        scenario=GONE,
        fault="dead end",
    ),
    Variant(
        rule=15,
        name="the next offer waits for nobody",
        change=without(offer_rules, "waits_for", instead=""),
        scenario=LAST,
        fault=f"{AGAIN}|while a rank is not done with the one before",
    ),
    Variant(
        rule=16,
        name="an orchestrator takes over from a live one",
        change=without(sync_rules, "refuse_live_orchestrator"),
        scenario=LEASES,
        fault="leads while another one does",
    ),
    Variant(
        rule=16,
        name="epochs are reused",
        change=without(sync_rules, "next_epoch", instead=1),
        scenario=LEASES,
        fault="epoch 1 is given out twice",
    ),
)
