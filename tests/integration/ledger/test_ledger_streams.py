"""Rules 2, 3, 10 and 11: opens match the attempt, acks are cumulative, and neither moves anything durable."""

import pytest

from dataserver.errors import AttemptMismatchError, InvalidRequestError
from dataserver.ledger import Progress


def test_an_open_tells_how_the_run_stands(story, clock):
    story.begin()
    clock.advance(10)
    run = story.open(1, rank=1)
    assert run == story.run
    assert run.attempt.lease_expire_time == clock.now + 30


def test_an_open_does_not_rewind(story):
    story.begin()
    story.open(1, rank=0)
    first = story.seal(1, 1)
    story.ledger.request_sync("run", 1)
    story.open(1, rank=1)
    assert story.seal(1, 1) == first
    assert first.sync_weights is False


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rank": 2, "dp_rank": 0}, "world_rank 2 is not below its world_size 2"),
        ({"dp_rank": 2}, "dp_rank 2 is not below its dp_world_size 2"),
        ({"next_step": 4}, "next_step 4 lies before its first step 6"),
        ({"next_step": 5}, "next_step 5 lies before its first step 6"),
        ({"next_step": 9}, "next_step 9 skips: the next step to be sealed is 8"),
    ],
)
def test_an_open_that_does_not_match_is_refused(story, fields, message):
    story.begin(story.cursor(5))
    story.seal_up_to(1, 7)
    with pytest.raises(AttemptMismatchError, match=message):
        story.open(1, **{"next_step": 6} | fields)
    assert story.run.attempt.lease_expire_time == story.run.attempt.begin_time + 30


@pytest.mark.parametrize(
    "fields",
    [{"rank": -1, "dp_rank": 0}, {"dp_rank": -1}, {"next_step": 0}, {"stream_id": ""}, {"stream_id": "x" * 65}],
)
def test_an_open_that_matches_no_attempt_at_all_is_refused(story, fields):
    story.begin()
    with pytest.raises(InvalidRequestError):
        story.open(1, **fields)


def test_an_open_before_any_attempt_is_refused(story):
    with pytest.raises(AttemptMismatchError, match="has no attempt 1"):
        story.open(1)


def test_a_rank_reconnects_at_its_next_step(story):
    story.begin()
    story.open(1)
    story.seal_up_to(1, 3)
    story.ack(1, {0: 2})
    for step in (3, 4):
        story.open(1, next_step=step)
    with pytest.raises(AttemptMismatchError, match="has acknowledged step 2: go on with step 3"):
        story.open(1, next_step=2)


def test_a_rank_keeps_its_dp_rank(story):
    story.begin()
    story.open(1, rank=0, dp_rank=1)
    with pytest.raises(AttemptMismatchError, match="opened as dp_rank 1 before and opens as 0"):
        story.open(1, rank=0, dp_rank=0)
    story.open(1, rank=1, dp_rank=0)


def test_every_dp_rank_is_read_by_as_many_ranks(story):
    story.begin(world_size=4, dp_world_size=2)
    story.open(1, rank=0, dp_rank=0)
    story.open(1, rank=3, dp_rank=0)
    with pytest.raises(AttemptMismatchError, match=r"which ranks \[0, 3\] have taken"):
        story.open(1, rank=1, dp_rank=0)
    story.open(1, rank=3, dp_rank=0)
    story.open(1, rank=1, dp_rank=1)
    story.open(1, rank=2, dp_rank=1)


def test_a_step_is_consumed_when_every_rank_acknowledged_it(story):
    story.begin()
    story.seal_up_to(1, 3)
    assert story.ack(1, {0: 3}) == Progress(attempt=story.key(1), sealed_step=3, acked_steps=(3, 0))
    assert story.run.consumed_step == 0
    assert story.ack(1, {1: 2}).acked_steps == (3, 2)
    assert story.run.consumed_step == 2
    assert story.ledger.progress(story.uid) == Progress(attempt=story.key(1), sealed_step=3, acked_steps=(3, 2))
    assert story.run.acked_steps == (3, 2)


def test_acks_are_cumulative_and_never_move_down(story):
    story.begin()
    story.seal_up_to(1, 3)
    story.ack(1, {0: 2, 1: 3})
    progress = story.ack(1, {0: 3, 1: 1})
    assert progress.acked_steps == (3, 3)
    assert story.ack(1, {}) == progress


@pytest.mark.parametrize(
    ("acks", "message"), [({0: 3}, "the last sealed step is 2"), ({2: 1}, "ranks 0 to 1"), ({-1: 1}, "-1")]
)
def test_an_ack_beyond_what_was_sealed_or_of_no_rank_is_refused(story, acks, message):
    story.begin()
    story.seal_up_to(1, 2)
    with pytest.raises(InvalidRequestError, match=message):
        story.ack(1, {0: 1, 1: 1} | acks)
    assert story.run.acked_steps == (0, 0)


def test_the_end_of_the_run_is_no_step_to_acknowledge(story):
    story.begin()
    story.seal(1, 1)
    story.seal(1, 2, end_of_run=True)
    story.ack(1, {0: 1})
    with pytest.raises(InvalidRequestError):
        story.ack(1, {0: 2})


def test_acks_begin_at_the_base_and_leave_the_committed_cursor_alone(story):
    story.begin(story.cursor(5))
    story.seal_up_to(1, 7)
    assert story.ledger.progress(story.uid).acked_steps == (5, 5)
    story.ack(1, {0: 7, 1: 7})
    assert story.run.committed == story.cursor(5)
    assert story.run.consumed_step == 7


def test_leases_are_renewed_over_several_runs(story, clock):
    for name in ("run", "other"):
        story.ledger.create_run(name, story.spec, story.fingerprint, epoch_samples=10)
        attempt = story.ledger.begin_attempt(
            name,
            resume=False,
            cursor=None,
            version=None,
            world_size=1,
            dp_world_size=1,
            batch=None,
            holder="h",
            take_over=False,
        )
        story.ledger.open_stream(
            name, attempt=attempt.key, world_rank=0, dp_rank=0, next_step=1, stream_id=f"of {name}"
        )
    clock.advance(20)
    story.ledger.renew_leases({"of run", "of other"})
    for name in ("run", "other"):
        assert story.ledger.get_run(name).attempt.lease_expire_time == clock.now + 30


def test_renewing_does_not_revive_a_closed_stream(story, clock):
    story.begin()
    story.open(1)
    story.ledger.close_stream(story.streams[0])
    closed = clock.now
    clock.advance(1)
    story.ledger.close_stream(story.streams[0])
    story.ledger.renew_leases(story.streams)
    assert story.run.attempt.lease_expire_time == closed


def test_closing_a_stream_that_never_was_is_no_error(story):
    story.begin()
    story.ledger.close_stream("never was")
    assert story.run.attempt.lease_expire_time == story.run.attempt.begin_time + 30
