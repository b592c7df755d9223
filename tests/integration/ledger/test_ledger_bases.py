"""Rules 4 and 5: where an attempt begins, and what is left of what came before."""

import pytest

from dataserver.cursor import Deal, Window
from dataserver.errors import AlreadyCommittedError, ForeignCursorError, InvalidRequestError, VersionNotFoundError


def test_a_new_attempt_drops_seals_and_stamps_after_its_base_and_keeps_requests(story, clock):
    story.begin()
    story.ledger.request_sync("run", 2)
    story.seal_up_to(1, 3)
    story.commit(1, 1)
    assert story.ledger.get_seal(story.uid, 2).sync_weights
    clock.advance(31)
    story.begin(story.cursor(1), world_size=1, dp_world_size=1)
    assert story.run.sealed_step == 1
    assert [story.ledger.get_seal(story.uid, step) is None for step in (1, 2, 3)] == [False, True, True]
    again = story.seal(2, 2, plan_digest="cut for one rank")
    assert (again.attempt, again.sync_weights) == (2, True)


def test_fresh_weights_do_not_begin_on_committed_steps(story, clock):
    story.begin()
    story.seal_up_to(1, 2)
    clock.advance(31)
    assert story.begin().base == story.cursor(0)
    story.seal(2, 1)
    story.commit(2, 1)
    clock.advance(31)
    with pytest.raises(AlreadyCommittedError, match="committed step 1"):
        story.begin()
    story.ledger.rewind_run("run", 0)
    assert story.begin().base == story.cursor(0)


def test_an_older_checkpoint_rewinds_the_ledger_visibly(story, clock):
    story.begin()
    story.seal_up_to(1, 5)
    for step in (2, 4):
        story.commit(1, step, f"file:///{step}")
    clock.advance(31)
    attempt = story.begin(story.cursor(2))
    assert (attempt.base, attempt.version) == (story.cursor(2), 2)
    assert story.run.committed == story.cursor(2)
    assert [(c.cursor.step, c.checkpoint_uri) for c in story.ledger.list_commits("run", 9)] == [(2, "file:///2")]
    assert story.kinds[-2:] == ["rewound", "attempt_begun"]
    details = [event.detail for event in story.ledger.list_events("run", 100)][-2:]
    assert "committed step 4, sealed step 5" in details[0]
    assert details[1].endswith("drops 3 seals of steps 3 to 5; drops 1 commits of step 4")


def test_a_checkpoint_whose_commit_was_lost_is_adopted(story, clock):
    story.begin()
    story.seal_up_to(1, 3)
    clock.advance(31)
    story.begin(story.cursor(2))
    assert story.run.committed == story.cursor(2)
    assert story.kinds[-2:] == ["cursor_adopted", "attempt_begun"]
    assert story.ledger.cursor_at("run", 2) == (story.cursor(2), "")


def test_a_checkpoint_ahead_of_a_restored_ledger_is_adopted_and_remembered(story, clock):
    story.begin()
    story.seal_up_to(1, 2)
    story.commit(1, 2)
    clock.advance(31)
    attempt = story.begin(story.cursor(9))
    assert attempt.version == 9
    run = story.run
    assert (run.committed, run.sealed_step, run.consumed_step) == (story.cursor(9), 9, 9)
    event = story.ledger.list_events("run", 100)[-2]
    assert (event.kind, event.attempt, event.step) == ("cursor_adopted", 2, 9)
    assert "committed step 2" in event.detail
    story.seal(2, 10)
    story.commit(2, 10)
    clock.advance(31)
    assert story.begin(version=9).base == story.cursor(9)


def test_a_checkpoint_that_contradicts_the_ledger_at_its_own_step_wins(story, clock):
    story.begin()
    story.seal_up_to(1, 3)
    story.commit(1, 2, "file:///2")
    clock.advance(31)
    other = story.cursor(2, position=5)
    story.begin(other)
    assert story.run.committed == other
    assert story.ledger.cursor_at("run", 2) == (other, "")
    assert story.ledger.get_seal(story.uid, 2) is None
    adopted = story.ledger.list_events("run", 100)[-2]
    assert adopted.kind == "cursor_adopted"
    assert "knew step 2 with another cursor" in adopted.detail
    story.seal(2, 3, end=story.cursor(3, position=7))


def test_a_cursor_of_another_order_is_refused_with_what_differs(story):
    _, fingerprint = story.other_order(seed=7, max_length=6)
    with pytest.raises(ForeignCursorError, match=r"seed \(this run: 0\), max_length \(this run: 8\)") as refusal:
        story.begin(story.cursor(3, order_fingerprint=fingerprint))
    assert refusal.value.details["fields"] == "seed,max_length"
    with pytest.raises(ForeignCursorError, match="fingerprint"):
        story.begin(story.cursor(3, order_fingerprint="garbage"))
    assert story.run.last_attempt == 0


def test_a_resume_by_version_is_looked_up_and_never_guessed(story, clock):
    story.begin()
    story.seal_up_to(1, 8)
    story.commit(1, 3, "file:///3")
    story.seal(1, 9, end_of_run=True)
    clock.advance(31)
    with pytest.raises(VersionNotFoundError, match=r"version 9; the nearest that it knows: 0, 3, 7, 8") as refusal:
        story.begin(version=9)
    assert refusal.value.details["nearest"] == "0,3,7,8"
    assert story.begin(version=5).base == story.cursor(5)
    clock.advance(31)
    with pytest.raises(VersionNotFoundError):
        story.begin(version=6)
    assert story.begin(version=3).base == story.cursor(3)
    clock.advance(31)
    assert story.begin(version=0).base == story.cursor(0)


def test_a_window_that_is_under_way_survives_in_the_ledger(story, clock):
    deal = Deal(
        dp_world_size=1,
        micro_batch_tokens=16,
        alignment=1,
        cost_linear=1,
        cost_quadratic=0,
        policy="balanced",
        planner_version=1,
    )
    inside = story.cursor(1, position=0, window=Window(steps=2, steps_done=1, samples=3, deal=deal))
    story.begin()
    story.seal(1, 1, end=inside)
    with pytest.raises(InvalidRequestError, match="commit the cursor that came with the step"):
        story.commit(1, 1)
    assert story.ledger.commit_cursor("run", story.key(1), inside, "").committed == inside
    clock.advance(31)
    assert story.begin(version=1).base == inside


def test_a_rewind_goes_to_known_versions_only(story):
    story.begin()
    story.seal_up_to(1, 4)
    story.commit(1, 2, "file:///2")
    with pytest.raises(VersionNotFoundError):
        story.ledger.rewind_run("run", 7)
    with pytest.raises(InvalidRequestError):
        story.ledger.rewind_run("run", -1)
    run = story.ledger.rewind_run("run", 3)
    assert run == story.run
    assert (run.committed, run.sealed_step, run.attempt, run.last_attempt) == (story.cursor(3), 3, None, 2)
    event = story.ledger.list_events("run", 100)[-1]
    assert (event.kind, event.attempt, event.step) == ("rewound", 2, 3)
    assert "fences attempt 1" in event.detail
    story.ledger.rewind_run("run", 2)
    assert story.ledger.cursor_at("run", None) == (story.cursor(2), "file:///2")


def test_a_branch_that_was_left_does_not_pass_for_the_way_to_an_adopted_checkpoint(story, clock):
    story.begin()
    story.seal_up_to(1, 8)
    story.commit(1, 4, "file:///4")
    story.commit(1, 8, "file:///8")
    clock.advance(31)
    story.begin(story.cursor(4), batch=story.spec.batch.model_copy(update={"step_samples": 1}))
    for step in (5, 6):
        story.seal(2, step, end=story.cursor(step, position=8 + (step - 4)))
    clock.advance(31)
    story.begin(story.cursor(8))
    for step in (4, 5, 6):
        assert story.ledger.get_seal(story.uid, step) is None
        with pytest.raises(VersionNotFoundError, match=r"nearest that it knows: 0, 8"):
            story.ledger.cursor_at("run", step)
    assert [commit.cursor.step for commit in story.ledger.list_commits("run", 9)] == [8]
    adopted, begun = story.ledger.list_events("run", 100)[-2:]
    assert adopted.kind == "cursor_adopted"
    assert "forgets every step before it" in adopted.detail
    assert begun.detail.endswith("drops 6 seals of steps 1 to 6; drops 1 commits of step 4")
    clock.advance(31)
    assert story.begin(version=0).base == story.cursor(0)


def test_what_leads_to_a_known_checkpoint_is_kept(story, clock):
    story.begin()
    story.seal_up_to(1, 3)
    story.commit(1, 1, "file:///1")
    clock.advance(31)
    story.begin(story.cursor(3))
    assert story.ledger.get_seal(story.uid, 2).attempt == 1
    assert story.ledger.cursor_at("run", 1) == (story.cursor(1), "file:///1")
    assert "forgets" not in "".join(event.detail for event in story.ledger.list_events("run", 100))
