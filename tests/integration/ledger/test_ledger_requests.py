"""Rule 13: which version a request gets, and what it is told when it comes too late."""

import pytest

from dataserver.errors import InvalidRequestError, OutOfRangeError, PreconditionError
from dataserver.weight_sync import PolicyVersion, RequestOutcome, SyncOutcome, WeightSync

ACCEPTED, LANDED, ALREADY_SEALED = RequestOutcome.ACCEPTED, RequestOutcome.LANDED, RequestOutcome.ALREADY_SEALED


@pytest.fixture
def ask(story):
    """Ask for a version of the run; outcome and version."""

    def ask(version: int | None, *, at_or_after: bool = False):
        answer = story.ledger.request_sync("run", version, at_or_after=at_or_after)
        return answer.outcome, answer.version

    return ask


@pytest.fixture
def report(story):
    """Report a sync of a version."""

    def report(number: int, outcome: SyncOutcome, *, attempt: int = 1, sync: int = 0):
        version = PolicyVersion(attempt=attempt, number=number)
        return story.ledger.report_sync(
            "run", WeightSync(sync_id=f"{100 * number + sync:032x}", version=version, outcome=outcome)
        )

    return report


def bounded(story, steps: int):
    """Begin an attempt of so many steps, whose two ranks take offers."""
    attempt = story.begin(batch=story.spec.batch.model_copy(update={"max_steps": steps}))
    for rank in range(2):
        story.open(attempt.number, rank, takes_offers=True)
    return attempt.number


def test_a_version_that_is_to_come_is_accepted_and_its_seal_says_so(story, ask):
    story.begin()
    assert ask(2) == (ACCEPTED, 2)
    assert ask(2) == (ACCEPTED, 2)
    assert [story.seal(1, step).sync_weights for step in (1, 2, 3)] == [False, True, False]
    assert story.ledger.sync_state("run").requested == (2,)


def test_a_version_that_is_sealed_without_a_stamp_comes_too_late(story, ask):
    bounded(story, 9)
    story.seal_up_to(1, 3)
    assert ask(2) == (ALREADY_SEALED, 4)
    assert story.ledger.sync_state("run").requested == ()
    assert story.seal(1, 4).sync_weights is False
    assert ask(2, at_or_after=True) == (ACCEPTED, 5)
    assert story.seal(1, 5).sync_weights is True


def test_a_version_that_is_stamped_is_accepted_until_its_sync_is_reported(story, ask, report):
    bounded(story, 9)
    ask(1)
    story.seal(1, 1)
    assert ask(1) == (ACCEPTED, 1)
    report(1, SyncOutcome.SKIPPED)
    assert ask(1) == (ALREADY_SEALED, 2)
    report(1, SyncOutcome.LANDED, sync=1)
    assert ask(1) == (LANDED, 1)
    assert story.ledger.sync_state("run").requested == ()


def test_a_version_beyond_the_end_is_an_error(story, ask):
    bounded(story, 3)
    with pytest.raises(OutOfRangeError, match=r"version 4 .* ends with version 3"):
        ask(4)
    with pytest.raises(OutOfRangeError, match="ends with version 3"):
        ask(4, at_or_after=True)
    assert ask(3) == (ACCEPTED, 3)
    with pytest.raises(InvalidRequestError, match="version = -1"):
        ask(-1)


def test_a_version_beyond_the_sealed_last_step_is_an_error(story, ask):
    story.begin()
    story.seal(1, 1, last=True)
    with pytest.raises(OutOfRangeError, match="ends with version 1"):
        ask(2)


def test_behind_the_last_step_only_that_version_can_be_asked_for_and_an_offer_brings_it(story, ask, report):
    bounded(story, 2)
    story.seal(1, 1)
    story.seal(1, 2, last=True)
    assert ask(1) == (ALREADY_SEALED, 2)
    assert ask(1, at_or_after=True) == (ACCEPTED, 2)
    report(2, SyncOutcome.LANDED)
    assert ask(1, at_or_after=True) == (LANDED, 2)


def test_last_is_accepted_without_a_number_and_stamps_the_last_step(story, ask, report):
    bounded(story, 2)
    assert ask(None) == (ACCEPTED, None)
    assert [story.seal(1, 1).sync_weights, story.seal(1, 2, last=True).sync_weights] == [False, True]
    assert story.ledger.sync_state("run").last_requested is True
    report(2, SyncOutcome.LANDED)
    assert ask(None) == (LANDED, 2)
    assert story.ledger.sync_state("run").last_requested is False


def test_a_run_that_is_over_refuses_what_did_not_land(story, ask, report):
    story.begin()
    ask(1)
    story.seal(1, 1, last=True)
    report(1, SyncOutcome.LANDED)
    story.seal(1, 2, end_of_run=True)
    assert ask(1) == (LANDED, 1)
    assert ask(None) == (LANDED, 1)
    with pytest.raises(PreconditionError, match="over and offers no weights"):
        ask(0)


def test_last_is_refused_where_trainers_take_no_offers_and_the_last_step_was_sealed_without_a_stamp(story, ask):
    story.begin()
    story.open(1)
    story.seal(1, 1, last=True)
    with pytest.raises(PreconditionError, match="its last version, 1, did not land"):
        ask(None)


def test_requests_stay_over_a_rewind_and_open_again(story, clock, ask, report):
    bounded(story, 9)
    ask(3)
    story.seal_up_to(1, 3)
    report(3, SyncOutcome.LANDED)
    assert story.ledger.sync_state("run").requested == ()
    clock.advance(31)
    story.begin(story.cursor(2))
    assert story.ledger.sync_state("run").requested == (3,)
    assert ask(3) == (ACCEPTED, 3)
    assert story.seal(2, 3).sync_weights is True


def test_the_base_can_be_asked_for_until_its_opening_offer_is_sealed(story, ask):
    story.begin(story.cursor(4))
    assert ask(4) == (ACCEPTED, 4)
    assert ask(2) == (ALREADY_SEALED, 4)
    story.open(1, next_step=5, takes_offers=True)
    assert story.ledger.get_offer(story.uid, story.key(1), 0).sync_weights is True
    assert ask(4) == (ACCEPTED, 4), "it is offered, and no report came yet"
    assert ask(3) == (ALREADY_SEALED, 5)


def test_a_base_that_nobody_offers_comes_too_late(story, ask):
    story.begin(story.cursor(4))
    story.open(1, next_step=5)
    assert ask(4) == (ALREADY_SEALED, 5)


def test_before_the_first_attempt_and_after_a_rewind_the_start_weights_can_be_asked_for(story, ask):
    assert ask(0) == (ACCEPTED, 0)
    story.begin()
    story.seal_up_to(1, 2)
    story.ledger.rewind_run("run", 1)
    assert ask(1) == (ACCEPTED, 1)
    assert ask(0) == (ALREADY_SEALED, 1)
