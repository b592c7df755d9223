"""The stream of one rank, against a server that misbehaves by script."""

import gc
import threading
import time
from random import Random

import numpy as np
import pytest

from dataserver.client import DEFAULT_CREDITS
from dataserver.client import stream as client_stream
from dataserver.errors import (
    ChecksumMismatchError,
    InternalError,
    PlanMismatchError,
    PreconditionError,
    StaleAttemptError,
    UnavailableError,
    WaitExpiredError,
)
from dataserver.testing import attempt_info

EARLIER: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _threads_of_others() -> None:
    """What tests before this one left is none of its business."""
    EARLIER.clear()
    EARLIER.update(threading.enumerate())


def receivers() -> list[threading.Thread]:
    threads = set(threading.enumerate()) - EARLIER
    return [thread for thread in threads if thread.name == "dataserver-receiver"]


def two_steps(connection):
    yield connection.opened()
    yield from connection.whole_step(1, 2)
    yield from connection.whole_step(2, 1, last=True)
    yield connection.end_of_run(2)
    assert connection.half_closed.wait(60)


def test_steps_and_micro_batches_come_in_order_with_what_a_trainer_needs(scripted):
    server, client = scripted(two_steps)
    taken = []
    with client.stream("r", attempt_info(7), world_rank=3, dp_rank=1, next_step=1) as stream:
        for step in stream:
            taken.append([(batch.step, batch.round, batch.tokens[0]) for batch in step])
            assert step.end.step == step.number
            assert step.wait_s >= 0
            stream.ack(step)
    assert taken == [[(1, 0, 100), (1, 1, 101)], [(2, 0, 200)]]
    assert step.last
    assert (step.target_count, step.token_count, step.sample_count) == (3, 5, 1)
    connection = server.connections[0]
    assert (connection.open.run, connection.open.attempt) == ("r", 7)
    assert (connection.open.world_rank, connection.open.dp_rank, connection.open.credits) == (3, 1, DEFAULT_CREDITS)
    assert [connection.acks.get(timeout=60) for _ in range(2)] == [1, 2]
    assert receivers() == []


def test_arrays_are_read_only_views(scripted):
    _, client = scripted(two_steps)
    with client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1) as stream:
        batch = next(next(stream))
        assert batch.tokens.dtype == np.uint16
        assert not batch.tokens.flags.writeable
        assert not batch.tokens.flags.owndata
        assert batch.labels.tolist() == [101, -100, 103, 104, -100]


def test_a_step_that_was_cut_off_is_resumed_without_loss_or_repeat(scripted):
    def cut_off(connection):
        yield connection.opened()
        yield from connection.whole_step(1, 1)
        yield connection.step_begun(2, 3, last=True)
        yield connection.micro_batch(2, 0)
        yield connection.micro_batch(2, 1)
        raise UnavailableError("restarting")

    def again(connection):
        yield connection.opened()
        yield from connection.whole_step(2, 3, last=True)
        yield connection.end_of_run(2)
        assert connection.half_closed.wait(60)

    server, client = scripted(cut_off, again)
    taken = []
    with client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1) as stream:
        for step in stream:
            taken += [(batch.step, batch.round) for batch in step]
            stream.ack(step)
    assert taken == [(1, 0), (2, 0), (2, 1), (2, 2)]
    assert server.connections[1].open.next_step == 2


def test_the_last_ack_is_sent_again_after_a_reconnect(scripted):
    cut = threading.Event()

    def cut_off(connection):
        yield connection.opened()
        yield from connection.whole_step(1, 1)
        assert cut.wait(60)
        raise UnavailableError("restarting")

    def again(connection):
        yield connection.opened()
        yield from connection.whole_step(2, 1)
        assert connection.half_closed.wait(60)

    server, client = scripted(cut_off, again)
    with client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1) as stream:
        step = next(stream)
        list(step)
        stream.ack(step)
        cut.set()
        next(stream)
        assert server.connections[1].acks.get(timeout=60) == 1


def test_a_step_sent_again_with_another_plan_is_refused(scripted):
    def cut_off(connection):
        yield connection.opened()
        yield connection.step_begun(1, 2)
        yield connection.micro_batch(1, 0)
        raise UnavailableError("restarting")

    def another(connection):
        yield connection.opened()
        yield connection.step_begun(1, 2, digest="other")
        assert connection.half_closed.wait(60)

    _, client = scripted(cut_off, another)
    with client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1) as stream:
        step = next(stream)
        next(step)
        with pytest.raises(PlanMismatchError, match=r"plan_digest 'd1' became 'other1'"):
            next(step)


@pytest.mark.parametrize("position", [0, 12, -1])
def test_a_flipped_bit_is_never_trained_on(scripted, position):
    def damaged(connection):
        yield connection.opened()
        yield connection.step_begun(1, 1)
        data = bytearray(connection.micro_batch(1, 0))
        data[position] ^= 0x10
        yield bytes(data)
        assert connection.half_closed.wait(60)

    server, client = scripted(damaged)
    with client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1) as stream:
        step = next(stream)
        for _ in range(2):  # what failed once keeps failing
            with pytest.raises(ChecksumMismatchError):
                next(step)
    assert len(server.connections) == 1


@pytest.mark.parametrize(
    "messages",
    [
        lambda connection: [connection.step_begun(2, 1)],
        lambda connection: [connection.step_begun(1, 2), connection.micro_batch(1, 1)],
        lambda connection: [connection.step_begun(1, 1), connection.micro_batch(2, 0)],
        lambda connection: [connection.step_begun(1, 2), connection.micro_batch(1, 0), connection.micro_batch(1, 0)],
        lambda connection: [connection.step_begun(1, 2), connection.step_begun(2, 1)],
        lambda connection: [connection.micro_batch(1, 0)],
    ],
    ids=["step skipped", "round skipped", "other step", "round repeated", "step cut short", "no step"],
)
def test_messages_out_of_order_are_a_fault_of_the_server(scripted, messages):
    def confused(connection):
        yield connection.opened()
        yield from messages(connection)
        assert connection.half_closed.wait(60)

    _, client = scripted(confused)
    with (
        client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1) as stream,
        pytest.raises(InternalError),
    ):
        [batch for step in stream for batch in step]


def test_what_the_server_raises_is_raised_in_the_training_loop_after_what_arrived_before(scripted):
    def displaced(connection):
        yield connection.opened()
        yield from connection.whole_step(1, 1)
        raise StaleAttemptError("attempt 1 of run r is over: attempt 2 exists", attempt=2)

    _, client = scripted(displaced)
    with client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1) as stream:
        assert len(list(next(stream))) == 1
        with pytest.raises(StaleAttemptError, match="attempt 2 exists") as caught:
            next(stream)
    assert caught.value.details == {"attempt": "2"}


def test_a_finished_rank_ends_normally_when_the_server_is_gone(scripted, monkeypatch):
    monkeypatch.setattr(client_stream, "_END_WAIT_S", 0.3)

    def dies_after_the_last_step(connection):
        yield connection.opened()
        yield from connection.whole_step(1, 1, last=True)
        assert connection.acks.get(timeout=60) == 1
        raise UnavailableError("gone for good")

    _, client = scripted(dies_after_the_last_step)
    with client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1) as stream:
        for step in stream:
            list(step)
            stream.ack(step)
        assert list(stream) == []
    assert step.last


def test_the_last_ack_reaches_a_server_that_restarts_after_the_last_step(scripted):
    def restarts_after_the_last_step(connection):
        yield connection.opened()
        yield from connection.whole_step(1, 1, last=True)
        assert connection.acks.get(timeout=60) == 1
        raise UnavailableError("restarting")

    def ends(connection):
        assert connection.acks.get(timeout=60) == 1
        yield connection.opened()
        yield connection.end_of_run(1)
        assert connection.half_closed.wait(60)

    server, client = scripted(restarts_after_the_last_step, ends)
    with client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1) as stream:
        for step in stream:
            list(step)
            stream.ack(step)
    assert server.connections[1].open.next_step == 2


def silent_after_a_step(connection):
    yield connection.opened()
    yield from connection.whole_step(1, 1)
    assert connection.half_closed.wait(60)


def test_a_server_that_is_there_but_silent_is_named_after_the_patience(scripted):
    server, client = scripted(silent_after_a_step, patience_s=1.5)
    with client.stream("r", attempt_info(), world_rank=5, dp_rank=0, next_step=1) as stream:
        list(next(stream))
        message = (
            rf"world rank 5 of run r, attempt 1 waits since .* for step 2 from {server.endpoint} \(step 1 is taken and "
            r"not acknowledged: call ack after each step\), which is there but sent nothing"
        )
        with pytest.raises(WaitExpiredError, match=message):
            next(stream)


def test_a_loop_that_owes_no_ack_is_not_told_that_it_does(scripted):
    server, client = scripted(silent_after_a_step, patience_s=1.5)
    with client.stream("r", attempt_info(), world_rank=5, dp_rank=0, next_step=1) as stream:
        step = next(stream)
        list(step)
        stream.ack(step)
        with pytest.raises(WaitExpiredError, match=rf"for step 2 from {server.endpoint}, which is there but sent"):
            next(stream)


def test_a_server_that_never_accepts_the_open_is_named_after_the_patience(scripted):
    def mute(connection):
        assert connection.half_closed.wait(60)
        yield from ()

    _, client = scripted(mute, patience_s=0.5)
    stream = client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1)
    with pytest.raises(WaitExpiredError, match="for step 1 from"):
        next(stream)


def test_patience_runs_out_naming_endpoints_and_seconds(scripted):
    server, client = scripted(patience_s=0.6)
    begin = time.monotonic()
    stream = client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1)
    with pytest.raises(UnavailableError, match=r"no data server answered for \d+\.\d s .*the script is over") as caught:
        next(stream)
    assert caught.value.details["endpoints"] == server.endpoint
    assert time.monotonic() - begin >= 0.6


def test_closing_in_the_middle_of_a_step_ends_the_thread_and_half_closes(scripted):
    server, client = scripted(two_steps)
    stream = client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1)
    next(next(stream))
    stream.close()
    stream.close()
    assert receivers() == []
    assert server.connections[0].half_closed.is_set()
    with pytest.raises(PreconditionError):
        next(stream)


def test_dropping_a_stream_ends_its_thread(scripted):
    _, client = scripted(two_steps)
    for step in client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1):
        next(step)
        break
    assert len(receivers()) == 1
    del step
    gc.collect()
    assert receivers() == []


def test_closing_the_client_closes_its_streams(scripted):
    _, client = scripted(two_steps)
    stream = client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1)
    next(stream)
    client.close()
    assert receivers() == []


def test_a_step_that_was_not_taken_whole_is_neither_acknowledged_nor_passed_by(scripted):
    _, client = scripted(two_steps)
    with client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1) as stream:
        step = next(stream)
        next(step)
        with pytest.raises(PreconditionError, match="after 1 of 2 micro-batches of step 1"):
            stream.ack(step)
        with pytest.raises(PreconditionError, match="after 1 of 2 micro-batches of step 1"):
            next(stream)
        next(step)
        stream.ack(step)
        assert next(stream).number == 2


def test_no_more_micro_batches_are_in_flight_than_credits(scripted):
    window, rounds = 5, 40
    sent = []

    def as_far_as_credits_go(connection):
        yield connection.opened()
        yield connection.step_begun(1, rounds, last=True)
        for index in range(rounds):
            assert connection.credits.acquire(timeout=60)
            sent.append(index)
            yield connection.micro_batch(1, index)
        yield connection.end_of_run(1)
        assert connection.half_closed.wait(60)

    server, client = scripted(as_far_as_credits_go)
    with client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1, credits=window) as stream:
        for step in stream:
            for taken, _ in enumerate(step, start=1):
                assert len(sent) <= taken + window
                assert server.connections[0].granted <= taken + window
            stream.ack(step)
    assert len(sent) == rounds


@pytest.mark.parametrize("seed", range(4))
def test_however_often_the_connection_breaks_each_round_comes_once_and_in_order(scripted, seed):
    random = Random(seed)
    rounds = [random.randint(1, 6) for _ in range(8)]

    def cut_somewhere(connection):
        sent, cut = 0, random.randint(1, 14)
        yield connection.opened()
        for number in range(connection.open.next_step, len(rounds) + 1):
            yield connection.step_begun(number, rounds[number - 1], last=number == len(rounds))
            for index in range(rounds[number - 1]):
                assert connection.credits.acquire(timeout=60)
                if sent == cut:
                    raise UnavailableError("cut")
                yield connection.micro_batch(number, index)
                sent += 1
        yield connection.end_of_run(len(rounds))
        assert connection.half_closed.wait(60)

    server, client = scripted(*[cut_somewhere] * 100)
    taken = []
    with client.stream(
        "r", attempt_info(), world_rank=0, dp_rank=0, next_step=1, credits=random.randint(1, 5)
    ) as stream:
        for step in stream:
            taken += [(batch.step, batch.round) for batch in step]
            stream.ack(step)
    assert taken == [(number, index) for number in range(1, len(rounds) + 1) for index in range(rounds[number - 1])]
    assert len(server.connections) > 2
    senders = [thread for thread in threading.enumerate() if thread not in EARLIER and "(_run)" in thread.name]
    for sender in senders:  # gRPC's own: one a connection, waiting for the next request to send
        sender.join(60)
    assert not any(sender.is_alive() for sender in senders)
