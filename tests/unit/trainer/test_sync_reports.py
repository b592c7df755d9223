"""Reports of syncs are delivered one by one, and none takes those behind it along."""

import pytest

from dataserver.errors import StaleAttemptError
from dataserver.weight_sync import PolicyVersion, SyncOutcome, WeightSync
from trainer.weights.reports import ReportThread


def ended(number: int) -> WeightSync:
    version = PolicyVersion(attempt=1, number=number)
    return WeightSync(sync_id=f"{number:032x}", version=version, outcome=SyncOutcome.LANDED)


@pytest.mark.parametrize("fault", [StaleAttemptError("dropped"), ValueError("unforeseen")], ids=["refused", "broken"])
def test_a_report_that_cannot_be_delivered_is_logged_and_the_next_one_is_delivered(fault: Exception, caplog):
    delivered: list[WeightSync] = []

    def deliver(sync: WeightSync) -> None:
        if sync.version.number == 1:
            raise fault
        delivered.append(sync)

    reports = ReportThread(deliver)
    for number in (1, 2):
        reports.add(ended(number))
    reports.finish(60.0)
    assert delivered == [ended(2)]
    assert f"report of sync {1:032x}" in caplog.text
    assert str(fault) in caplog.text
