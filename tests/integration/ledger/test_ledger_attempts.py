"""Rules 1 to 5: who may begin an attempt, and where it begins."""

import pytest

from dataserver.cursor import Deal, Window
from dataserver.errors import (
    AlreadyCommittedError,
    AttemptAliveError,
    AttemptMismatchError,
    ForeignCursorError,
    HolderFencedError,
    InvalidRequestError,
    InvalidSpecError,
    StaleAttemptError,
    VersionNotFoundError,
)
from dataserver.run_spec import BatchSpec


def test_an_attempt_is_fixed_as_it_was_asked_for(story, clock):
    batch = BatchSpec(step_samples=3, micro_batch_tokens=32)
    attempt = story.begin(world_size=4, dp_world_size=2, batch=batch)
    assert attempt == story.run.attempt
    assert (attempt.number, attempt.base, attempt.version) == (1, story.cursor(0), 0)
    assert (attempt.world_size, attempt.dp_world_size, attempt.batch) == (4, 2, batch)
    assert (attempt.holder, attempt.begin_time) == ("launcher-a", clock.now)
    assert story.run.acked_steps == (0, 0, 0, 0)


def test_an_attempt_without_a_batch_spec_takes_the_runs(story):
    assert story.begin().batch == story.spec.batch


def test_numbers_increase_over_attempts_and_rewinds(story, clock):
    numbers = []
    for _ in range(3):
        numbers.append(story.begin().number)
        clock.advance(31)
        numbers.append(story.ledger.rewind_run("run", 0).last_attempt)
    assert numbers == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"world_size": 0}, "world_size = 0"),
        ({"world_size": -1}, "world_size = -1"),
        ({"world_size": 2**20}, "world_size = 1048576"),
        ({"dp_world_size": 0}, "dp_world_size = 0"),
        ({"dp_world_size": 3}, "dp_world_size = 3"),
        ({"world_size": 4, "dp_world_size": 3}, "does not divide"),
        ({"holder": ""}, "holder is empty"),
        ({"holder": "x" * 257}, "holder has 257"),
        ({"holder": "a\0b"}, "NUL"),
        ({"resume": True}, "RESUME needs"),
        ({"version": 3, "resume": False}, "START begins at version 0"),
        ({"version": -1, "resume": True}, "version = -1"),
    ],
)
def test_arguments_that_no_run_could_make_right_are_refused(story, fields, message):
    with pytest.raises(InvalidRequestError, match=message):
        story.begin(**fields)
    assert story.run.last_attempt == 0


def test_a_version_that_contradicts_the_cursor_is_refused(story):
    with pytest.raises(InvalidRequestError, match=r"version = 4 contradicts .* version 3"):
        story.begin(story.cursor(3), version=4)


def test_a_batch_spec_that_holds_no_longest_sample_is_refused(story):
    with pytest.raises(InvalidSpecError, match="micro_batch_tokens = 4 is below"):
        story.begin(batch=BatchSpec(step_samples=1, micro_batch_tokens=4))
    assert story.run.last_attempt == 0


def test_a_fresh_start_takes_no_cursor(story):
    with pytest.raises(InvalidRequestError, match="RESUME"):
        story.begin(story.cursor(1), resume=False)


def test_a_live_attempt_is_not_displaced_not_even_by_its_own_holder(story, clock):
    story.begin()
    for holder in ("launcher-a", "launcher-b"):
        with pytest.raises(AttemptAliveError, match="'launcher-a' holds it since 1970-01-12 13:46:40") as refusal:
            story.begin(holder=holder)
    assert refusal.value.details["wait_s"] == "30.000"
    assert refusal.value.details["holder"] == "launcher-a"
    clock.advance(29.9)
    with pytest.raises(AttemptAliveError):
        story.begin()
    clock.advance(0.1)
    assert story.begin().number == 2


def test_an_attempt_lives_as_long_as_a_stream_is_open_and_renewed(story, clock):
    story.begin()
    story.open(1, rank=1)
    clock.advance(25)
    story.ledger.renew_leases("server-1")
    clock.advance(25)
    with pytest.raises(AttemptAliveError):
        story.begin()
    story.ledger.renew_leases("server-2")
    clock.advance(5)
    assert story.begin().number == 2


def test_closed_streams_free_an_attempt_at_once(story):
    story.begin()
    story.open(1, rank=0)
    story.open(1, rank=1)
    story.ledger.close_stream(story.uid, 1, 0, "server-1")
    with pytest.raises(AttemptAliveError):
        story.begin()
    story.ledger.close_stream(story.uid, 1, 1, "server-1")
    assert story.begin().number == 2


def test_a_reconnect_is_alive_though_the_broken_stream_is_closed_after_it(story):
    story.begin()
    story.open(1)
    story.open(1)
    story.ledger.close_stream(story.uid, 1, 0, "server-1")
    with pytest.raises(AttemptAliveError):
        story.begin()
    story.ledger.close_stream(story.uid, 1, 0, "server-1")
    assert story.begin().number == 2


def test_closing_at_one_server_leaves_the_stream_at_another(story):
    story.begin()
    story.open(1, server_id="server-1")
    story.open(1, server_id="server-2")
    for _ in range(2):
        story.ledger.close_stream(story.uid, 1, 0, "server-1")
    with pytest.raises(AttemptAliveError):
        story.begin()
    story.ledger.close_stream(story.uid, 1, 0, "server-2")
    assert story.begin().number == 2


def test_a_late_close_of_an_older_attempt_frees_nothing(story, clock):
    story.begin()
    story.open(1)
    clock.advance(31)
    story.begin()
    story.open(2)
    story.ledger.close_stream(story.uid, 1, 0, "server-1")
    with pytest.raises(AttemptAliveError):
        story.begin()


def test_taking_over_fences_the_displaced_holder_for_ever(story, clock):
    story.begin()
    assert story.begin(holder="launcher-b", take_over=True).number == 2
    clock.advance(1000)
    for take_over in (False, True):
        with pytest.raises(HolderFencedError, match="'launcher-a' was displaced"):
            story.begin(take_over=take_over)
    assert story.begin(holder="launcher-c").number == 3
    events = story.ledger.list_events("run", 100)
    displaced = next(event for event in events if event.kind == "attempt_displaced")
    assert displaced.attempt == 1
    assert displaced.detail == "launcher-b took over from launcher-a, which may not begin again"


def test_taking_over_from_oneself_or_from_the_dead_fences_nobody(story, clock):
    story.begin()
    assert story.begin(take_over=True).number == 2
    clock.advance(31)
    assert story.begin(holder="launcher-b", take_over=True).number == 3
    clock.advance(31)
    assert story.begin().number == 4
    assert "attempt_displaced" not in story.kinds


def test_a_holder_that_was_fenced_once_may_be_displaced_again_without_fault(story, clock):
    story.begin()
    story.begin(holder="launcher-b", take_over=True)
    story.begin(holder="launcher-c", take_over=True)
    for holder in ("launcher-a", "launcher-b"):
        with pytest.raises(HolderFencedError):
            story.begin(holder=holder)


def test_a_lower_attempt_is_refused_on_every_call(story, clock):
    story.begin()
    story.seal(1, 1)
    clock.advance(31)
    story.begin()
    for call in (
        lambda: story.open(1),
        lambda: story.seal(1, 1),
        lambda: story.ledger.record_acks(story.uid, 1, {0: 1}),
        lambda: story.commit(1, 1),
    ):
        with pytest.raises(StaleAttemptError, match="attempt 2 is the current one") as refusal:
            call()
    assert refusal.value.details == {"attempt": "1", "current_attempt": "2"}


def test_a_rewind_fences_the_attempt_that_runs(story):
    story.begin()
    story.seal_up_to(1, 2)
    story.ledger.rewind_run("run", 0)
    for call in (lambda: story.open(1), lambda: story.seal(1, 3)):
        with pytest.raises(StaleAttemptError, match="rewound"):
            call()
    with pytest.raises(StaleAttemptError):
        story.ledger.progress(story.uid)
    assert story.begin().number == 3


@pytest.mark.parametrize("number", [-1, 0, 2])
def test_an_attempt_that_was_never_issued_is_no_attempt(story, number):
    story.begin()
    with pytest.raises(AttemptMismatchError, match=f"no attempt {number}"):
        story.open(number)


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
    assert story.ledger.commit_cursor("run", 1, inside, "").committed == inside
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
