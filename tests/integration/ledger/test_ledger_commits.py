"""Rules 3, 5 and 11: only a commit moves the durable position, and only upwards within an attempt."""

import pytest

from dataserver.errors import ForeignCursorError, InvalidRequestError, VersionNotFoundError


def test_a_commit_is_the_runs_position_and_can_be_repeated(story, clock):
    story.begin()
    story.seal_up_to(1, 3)
    run = story.commit(1, 2, "file:///2")
    assert run == story.run
    assert run.committed == story.cursor(2)
    begun = clock.now
    clock.advance(5)
    assert story.commit(1, 2, "file:///2").committed == story.cursor(2)
    (commit,) = story.ledger.list_commits("run", 10)
    assert (commit.cursor, commit.attempt, commit.checkpoint_uri) == (story.cursor(2), 1, "file:///2")
    assert commit.time == begun
    assert story.kinds.count("committed") == 1


def test_a_commit_needs_no_acks(story):
    story.begin()
    story.seal(1, 1)
    assert story.commit(1, 1).committed == story.cursor(1)
    assert story.run.consumed_step == 0


def test_a_delayed_older_commit_does_not_move_the_run_down(story):
    story.begin()
    story.seal_up_to(1, 4)
    story.commit(1, 4, "file:///4")
    assert story.commit(1, 2, "file:///2").committed == story.cursor(4)
    assert [c.checkpoint_uri for c in story.ledger.list_commits("run", 10)] == ["file:///2", "file:///4"]


def test_a_checkpoint_that_moved_is_found_where_it_is(story):
    story.begin()
    story.seal(1, 1)
    story.commit(1, 1, "file:///old")
    story.commit(1, 1, "file:///new")
    story.commit(1, 1)
    assert story.ledger.cursor_at("run", 1) == (story.cursor(1), "file:///new")


def test_the_base_can_be_committed(story):
    story.begin(story.cursor(5))
    assert story.commit(1, 5, "file:///5").committed == story.cursor(5)
    assert story.ledger.cursor_at("run", None) == (story.cursor(5), "file:///5")


def test_a_cursor_that_is_not_where_the_step_ended_is_refused(story):
    story.begin()
    story.seal_up_to(1, 2)
    with pytest.raises(InvalidRequestError, match="commit the cursor that came with the step"):
        story.commit(1, 2, position=3)
    with pytest.raises(InvalidRequestError, match="has sealed no such step; its last is 2"):
        story.commit(1, 3)
    story.seal(1, 3, end_of_run=True)
    with pytest.raises(InvalidRequestError, match="has sealed no such step"):
        story.commit(1, 3)
    assert story.run.committed == story.cursor(0)


def test_a_step_of_an_earlier_attempt_is_not_committed_by_a_later_one(story, clock):
    story.begin()
    story.seal_up_to(1, 3)
    clock.advance(31)
    story.begin(story.cursor(2))
    with pytest.raises(InvalidRequestError, match="has sealed no such step"):
        story.commit(2, 1)


def test_a_foreign_cursor_is_not_committed(story):
    story.begin()
    story.seal(1, 1)
    _, fingerprint = story.other_order(seed=1)
    with pytest.raises(ForeignCursorError, match="seed"):
        story.commit(1, 1, order_fingerprint=fingerprint)


def test_cursors_are_found_by_version(story):
    story.begin()
    story.seal_up_to(1, 4)
    story.commit(1, 2, "file:///2")
    assert story.ledger.cursor_at("run", None) == (story.cursor(2), "file:///2")
    assert story.ledger.cursor_at("run", 0) == (story.cursor(0), "")
    assert story.ledger.cursor_at("run", 3) == (story.cursor(3), "")
    with pytest.raises(VersionNotFoundError, match="nearest that it knows: 0, 2, 3, 4"):
        story.ledger.cursor_at("run", 5)


def test_commits_are_listed_by_step_in_pages(story):
    story.begin()
    story.seal_up_to(1, 6)
    for step in (2, 4, 6):
        story.commit(1, step)
    assert [c.cursor.step for c in story.ledger.list_commits("run", 2)] == [2, 4]
    assert [c.cursor.step for c in story.ledger.list_commits("run", 2, after_step=4)] == [6]


def test_a_checkpoint_uri_is_bounded(story):
    story.begin()
    story.seal(1, 1)
    with pytest.raises(InvalidRequestError, match="checkpoint_uri has 5000"):
        story.commit(1, 1, "x" * 5000)
