"""A report arrives, whatever text others had to say about its sync."""

import pytest

from dataserver.ledger.sync_arguments import check_report
from dataserver.weight_sync import MAX_DETAIL_LENGTH, PolicyVersion, SyncOutcome, WeightSync
from dataserver.wire.syncs import sync_from_proto, sync_to_proto


def landed(detail: str) -> WeightSync:
    version = PolicyVersion(attempt=1, number=7)
    return WeightSync(
        sync_id="1" * 32, version=version, outcome=SyncOutcome.LANDED, engines=("a",), detail=detail, report_time=1.0
    )


@pytest.mark.parametrize("text", ["x", "é", "\u4e2d", "\U0001f4a5", "\0", "\udc80"])
def test_a_report_whose_detail_is_too_long_is_taken_and_says_that_it_was_cut(text: str):
    arrived = sync_from_proto(sync_to_proto(landed("engine b: no answer; " + text * MAX_DETAIL_LENGTH)))
    check_report(arrived)
    assert (arrived.outcome, arrived.engines) == (SyncOutcome.LANDED, ("a",))
    assert arrived.detail.startswith("engine b: no answer; ")
    assert arrived.detail.endswith("… (cut)")


@pytest.mark.parametrize("text", ["", "engine b: 中", "x" * MAX_DETAIL_LENGTH])
def test_a_detail_that_fits_arrives_as_it_is(text: str):
    assert sync_from_proto(sync_to_proto(landed(text))) == landed(text)


@pytest.mark.parametrize("text", ["nul \0", "lone \udc80"])
def test_what_cannot_be_stored_is_replaced(text: str):
    arrived = sync_from_proto(sync_to_proto(landed(text)))
    check_report(arrived)
    assert arrived.detail == f"{text[:-1]}?"
