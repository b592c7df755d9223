"""Rule 14: what is known of syncs, by version, and what a rewind forgets."""

from itertools import permutations

import pytest

from dataserver.errors import InvalidRequestError, StaleAttemptError
from dataserver.weight_sync import PolicyVersion, SyncOutcome, WeightSync


def sync(number: int = 1, outcome: SyncOutcome = SyncOutcome.LANDED, *, attempt: int = 1, name: int = 1, **fields):
    version = PolicyVersion(attempt=attempt, number=number)
    return WeightSync(sync_id=f"{name:032x}", version=version, outcome=outcome, **fields)


@pytest.fixture
def three(story):
    """A run with three sealed steps."""
    story.begin()
    story.seal_up_to(1, 3)
    return story


def test_a_report_is_kept_with_the_ledgers_time_and_a_repetition_changes_nothing(three, clock):
    reported = sync(engines=("b", "a"), seconds=2.0, stall_seconds=0.5, detail="well")
    written = three.ledger.report_sync("run", reported)
    assert (written.engines, written.report_time) == (("a", "b"), clock.now)
    clock.advance(5)
    assert three.ledger.report_sync("run", reported) == written
    state = three.ledger.sync_state("run")
    assert (state.syncs, state.landed) == ((written,), reported.version)


@pytest.mark.parametrize("order", list(permutations(SyncOutcome)), ids="-".join)
def test_of_several_reports_of_one_sync_landed_wins_in_any_order(three, order):
    for outcome in order:
        engines = ("a",) if outcome is SyncOutcome.LANDED else ()
        stall_s = 0.5 if outcome is SyncOutcome.SKIPPED else 0.0
        last = three.ledger.report_sync("run", sync(1, outcome, engines=engines, stall_seconds=stall_s))
    assert (last.outcome, last.engines, last.stall_seconds) == (SyncOutcome.LANDED, ("a",), 0.5)


def test_a_sync_is_of_one_version(three):
    three.ledger.report_sync("run", sync(1))
    with pytest.raises(InvalidRequestError, match=r"of version 1\.1, and is reported for version 1\.2"):
        three.ledger.report_sync("run", sync(2))


def test_a_report_of_a_version_that_is_not_there_is_refused(three):
    for version in (sync(4), sync(1, attempt=2)):
        with pytest.raises(InvalidRequestError, match="has no version"):
            three.ledger.report_sync("run", version)


def test_a_rewind_forgets_what_landed_after_its_base_and_late_reports_of_it_are_refused(three, clock):
    for number in (1, 2, 3):
        three.ledger.report_sync("run", sync(number, name=number))
    clock.advance(31)
    three.begin(three.cursor(2))
    state = three.ledger.sync_state("run")
    assert [each.version.number for each in state.syncs] == [2, 1]
    assert state.landed == PolicyVersion(attempt=1, number=2)
    three.seal(2, 3)
    with pytest.raises(StaleAttemptError, match=r"version 1\.3 .* version 3 is attempt 2's now"):
        three.ledger.report_sync("run", sync(3, name=9))
    three.ledger.report_sync("run", sync(3, attempt=2, name=8))
    assert three.ledger.sync_state("run").landed == PolicyVersion(attempt=2, number=3)


def test_a_late_report_of_a_version_that_survives_counts(three, clock):
    clock.advance(31)
    three.begin(three.cursor(2))
    three.ledger.report_sync("run", sync(1))
    assert three.ledger.sync_state("run").landed == PolicyVersion(attempt=1, number=1)


def test_fresh_weights_are_another_version_0(story, clock):
    story.begin()
    story.ledger.request_sync("run", 0)
    story.ledger.report_sync("run", sync(0))
    assert story.ledger.sync_state("run").requested == ()
    clock.advance(31)
    story.begin()
    state = story.ledger.sync_state("run")
    assert (state.landed, state.requested) == (None, (0,))
    with pytest.raises(StaleAttemptError):
        story.ledger.report_sync("run", sync(0, name=2))
    story.ledger.report_sync("run", sync(0, attempt=2, name=2))


def test_an_adopted_base_is_the_version_of_the_attempt_that_brought_it(story, clock):
    story.begin(story.cursor(7))
    story.ledger.report_sync("run", sync(7))
    clock.advance(31)
    story.begin(story.cursor(7))
    assert story.ledger.sync_state("run").landed == PolicyVersion(attempt=1, number=7)


def test_the_state_shows_what_stands(three, clock):
    three.ledger.hold_sync("run", "eval", 60.0)
    three.ledger.hold_sync("run", "short", 5.0)
    three.ledger.request_sync("run", 7)
    three.ledger.request_sync("run", None)
    clock.advance(6)
    state = three.ledger.sync_state("run")
    assert (state.run, state.attempt, state.sealed_step, state.consumed_step) == ("run", 1, 3, 0)
    assert (state.requested, state.last_requested, state.last_sealed, state.ended) == ((7,), True, False, False)
    assert [hold.hold_id for hold in state.holds] == ["eval"]
    assert (state.lease, state.landed, state.syncs, state.max_steps) == (None, None, (), None)
