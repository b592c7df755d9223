"""Rules 6 and 9: a step is fixed once, with its flag, and everyone reads the same."""

import pytest

from dataserver.errors import ForeignCursorError, InvalidRequestError, PlanMismatchError, PreconditionError
from dataserver.ledger import Seal


def test_a_seal_is_written_once_and_read_by_all(story):
    story.begin()
    sealed = story.seal(1, 1)
    assert sealed == Seal(
        step=1,
        attempt=1,
        end=story.cursor(1),
        plan_digest="digest-1",
        planner_version=1,
        sync_weights=False,
        last=False,
        end_of_run=False,
    )
    assert story.seal(1, 1) == sealed
    assert story.ledger.get_seal(story.uid, 1) == sealed
    assert story.run.sealed_step == 1
    assert story.ledger.get_seal(story.uid, 2) is None


def test_steps_are_sealed_one_after_the_other(story):
    story.begin(story.cursor(4))
    with pytest.raises(PreconditionError, match=r"step 6 .* the next to be sealed is 5"):
        story.seal(1, 6)
    story.seal(1, 5)
    story.seal(1, 6)


def test_a_step_of_an_earlier_attempt_is_not_served_again(story, clock):
    story.begin()
    story.seal_up_to(1, 3)
    clock.advance(31)
    story.begin(story.cursor(2))
    assert story.ledger.get_seal(story.uid, 2).attempt == 1
    with pytest.raises(PreconditionError, match="sealed by attempt 1 and is not part of attempt 2"):
        story.seal(2, 2)


@pytest.mark.parametrize(
    "fields", [{"plan_digest": "other"}, {"planner_version": 2}, {"last": True}, {"end": {"position": 1}}]
)
def test_another_plan_is_refused_with_both_named(story, fields):
    story.begin()
    sealed = story.seal(1, 1)
    if "end" in fields:
        fields = {"end": story.cursor(1, **fields["end"])}
    with pytest.raises(
        PlanMismatchError, match=r"sealed as digest digest-1 by planner 1, ending at .* position 2"
    ) as e:
        story.seal(1, 1, **fields)
    assert e.value.details["sealed_digest"] == "digest-1"
    assert e.value.details["computed_digest"] == fields.get("plan_digest", "digest-1")
    assert story.ledger.get_seal(story.uid, 1) == sealed


def test_the_end_is_sealed_and_nothing_follows(story):
    story.begin()
    story.seal(1, 1, last=True)
    end = story.seal(1, 2, end_of_run=True)
    assert end.end_of_run
    assert not end.sync_weights
    assert end.end == story.cursor(1)
    assert story.seal(1, 2, end_of_run=True) == end
    run = story.run
    assert (run.ended, run.sealed_step) == (True, 1)
    with pytest.raises(PlanMismatchError, match="sealed as the end of the run"):
        story.seal(1, 2)
    with pytest.raises(PreconditionError, match="ended after step 1"):
        story.seal(1, 3)


def test_the_end_is_not_sealed_over_a_step(story):
    story.begin()
    story.seal(1, 1)
    with pytest.raises(PlanMismatchError, match="this server computes the end of the run"):
        story.seal(1, 1, end_of_run=True)


def test_no_step_follows_the_last_one(story):
    story.begin()
    story.seal(1, 1, last=True)
    with pytest.raises(PlanMismatchError, match="sealed as the last"):
        story.seal(1, 2)


def test_a_later_attempt_may_go_on_after_the_end(story, clock):
    story.begin()
    story.seal(1, 1, last=True)
    story.seal(1, 2, end_of_run=True)
    clock.advance(31)
    story.begin(story.cursor(1))
    assert story.run.ended is False
    assert story.seal(2, 2).step == 2


def test_a_run_may_end_where_an_attempt_begins(story):
    story.begin(story.cursor(3))
    assert story.seal(1, 4, end_of_run=True).end == story.cursor(3)


def test_a_seal_whose_cursor_is_not_of_its_step_or_order_is_refused(story):
    story.begin()
    with pytest.raises(InvalidRequestError, match="ends at cursor step 2"):
        story.seal(1, 1, end=story.cursor(2))
    with pytest.raises(InvalidRequestError, match="ends at cursor step 1"):
        story.seal(1, 1, end_of_run=True, end=story.cursor(1))
    with pytest.raises(InvalidRequestError, match="step = 0"):
        story.seal(1, 0)
    _, fingerprint = story.other_order(seed=1)
    with pytest.raises(ForeignCursorError, match="seed"):
        story.seal(1, 1, end=story.cursor(1, order_fingerprint=fingerprint))
    assert story.run.sealed_step == 0


def test_the_flag_says_whether_the_version_is_requested(story):
    story.begin()
    story.ledger.request_sync("run", 2)
    story.ledger.request_sync("run", 2)
    assert [story.seal(1, step).sync_weights for step in (1, 2, 3)] == [False, True, False]
    story.ledger.request_sync("run", 3)
    assert story.seal(1, 3).sync_weights is False
    with pytest.raises(InvalidRequestError, match="version = -1"):
        story.ledger.request_sync("run", -1)


def test_while_a_hold_lives_every_seal_is_flagged(story, clock):
    story.begin()
    story.ledger.hold_sync("run", "eval-1", 10)
    story.ledger.hold_sync("run", "eval-2", 5)
    flags = [story.seal(1, 1).sync_weights]
    clock.advance(6)
    story.ledger.hold_sync("run", "eval-1", 10)
    clock.advance(9)
    flags.append(story.seal(1, 2).sync_weights)
    clock.advance(1)
    flags.append(story.seal(1, 3).sync_weights)
    story.ledger.hold_sync("run", "eval-3", 10)
    flags.append(story.seal(1, 4).sync_weights)
    story.ledger.release_sync("run", "eval-3")
    story.ledger.release_sync("run", "eval-3")
    flags.append(story.seal(1, 5).sync_weights)
    assert flags == [True, True, False, True, False]


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan"), float("inf"), 1e6])
def test_a_hold_that_never_lives_or_never_ends_is_refused(story, ttl_s):
    with pytest.raises(InvalidRequestError, match="ttl"):
        story.ledger.hold_sync("run", "hold", ttl_s)
