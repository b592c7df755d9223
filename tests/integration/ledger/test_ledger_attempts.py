"""Rules 1 and 3: who may begin an attempt, and how long it is alive."""

import pytest
from sqlalchemy import func, select

from dataserver.errors import (
    AttemptAliveError,
    AttemptMismatchError,
    HolderFencedError,
    InvalidRequestError,
    InvalidSpecError,
    StaleAttemptError,
)
from dataserver.ledger import schema
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
    story.ledger.renew_leases(story.streams)
    clock.advance(25)
    with pytest.raises(AttemptAliveError):
        story.begin()
    story.ledger.renew_leases(["of another server"])
    clock.advance(5)
    assert story.begin().number == 2


def test_a_stream_whose_close_never_came_lapses_though_its_server_lives_on(story, clock):
    story.begin()
    story.open(1, rank=0)
    clock.advance(20)
    story.ledger.renew_leases([])
    clock.advance(9.9)
    with pytest.raises(AttemptAliveError):
        story.begin()
    clock.advance(0.1)
    assert story.begin().number == 2


def test_closed_streams_free_an_attempt_at_once(story):
    story.begin()
    story.open(1, rank=0)
    story.open(1, rank=1)
    story.ledger.close_stream(story.streams[0])
    with pytest.raises(AttemptAliveError):
        story.begin()
    story.ledger.close_stream(story.streams[1])
    assert story.begin().number == 2


def test_a_repeated_close_leaves_the_ranks_next_stream_alone(story):
    story.begin()
    story.open(1)
    story.open(1)
    for _ in range(3):
        story.ledger.close_stream(story.streams[0])
    with pytest.raises(AttemptAliveError):
        story.begin()
    story.ledger.close_stream(story.streams[1])
    assert story.begin().number == 2


def test_a_repeated_open_is_one_stream(story):
    story.begin()
    for _ in range(3):
        story.open(1, stream_id="one")
    story.ledger.close_stream("one")
    assert story.begin().number == 2


def test_a_late_copy_of_an_open_does_not_revive_its_stream(story, clock):
    story.begin()
    story.open(1, stream_id="one")
    story.ledger.close_stream("one")
    clock.advance(1)
    story.open(1, stream_id="one")
    assert story.begin().number == 2


def test_a_rank_that_reconnects_for_ever_leaves_few_rows(story, database):
    story.begin()
    for _ in range(20):
        story.open(1)
        story.ledger.close_stream(story.streams[-1])
    count = database.read(lambda c: c.execute(select(func.count()).select_from(schema.streams)).scalar_one())
    assert count == 1
    assert story.begin().number == 2


def test_a_late_close_of_an_older_attempt_frees_nothing(story, clock):
    story.begin()
    story.open(1)
    clock.advance(31)
    story.begin()
    story.open(2)
    story.ledger.close_stream(story.streams[0])
    with pytest.raises(AttemptAliveError):
        story.begin()


def test_more_streams_than_one_statement_takes_are_renewed(story, clock):
    story.begin()
    story.open(1)
    clock.advance(20)
    story.ledger.renew_leases([*(f"{number}" for number in range(1200)), story.streams[0]])
    assert story.run.attempt.lease_expire_time == clock.now + 30


def every_call_of(story, attempt):
    """What a rank of an attempt asks of the ledger, one by one."""
    return (
        lambda: story.open(attempt),
        lambda: story.seal(attempt, 1),
        lambda: story.ack(attempt, {0: 1}),
        lambda: story.commit(attempt, 1),
    )


def test_an_attempt_of_a_deleted_run_is_over_though_its_number_is_issued_again(story):
    story.begin()
    story.open(1)
    story.ledger.close_stream(story.streams[0])
    story.ledger.delete_run("run")
    lost = story.keys[1]
    story.uid = story.ledger.create_run("run", story.spec, story.fingerprint, epoch_samples=10)[0].uid
    story.begin(holder="launcher-b")
    story.seal(1, 1)
    ours = story.keys[1]
    assert ours.attempt_id != lost.attempt_id
    story.keys[1] = lost
    for call in every_call_of(story, 1):
        with pytest.raises(StaleAttemptError, match=r"attempt 1 .* is another one by now: it has id"):
            call()
    story.keys[1] = ours
    for call in every_call_of(story, 1):
        call()


def test_ids_of_attempts_cannot_be_guessed(story, clock):
    ids = set()
    for _ in range(5):
        ids.add(story.begin().attempt_id)
        clock.advance(31)
    assert len(ids) == 5
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)


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
    for call in every_call_of(story, 1):
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
