"""What a rank sees on its stream: order, pacing, credits, and who is allowed to have it."""

import queue
import sqlite3
import time
from contextlib import closing

import grpc
import pytest
from serverlab import LENGTHS, PATIENCE_S, Job, eventually, job_on, metric

from dataserver.errors import AttemptAliveError
from dataserver.testing import RunningServer, running_server, write_store
from dataserver.v1 import run_service_pb2
from dataserver.wire.status import error_of


def reason_of(error: grpc.RpcError) -> str:
    return type(error_of(error)).__name__


def test_an_epoch_streams_every_sample_once_and_then_ends(job: Job) -> None:
    job.create(max_epochs=1)
    stream = job.open(job.begin())
    assert stream.take("opened").base.step == 0
    lengths: list[int] = []
    step, last = 0, False
    while not last:
        begun, micro_batches = stream.take_step()
        step, last = step + 1, begun.last
        assert begun.step == step
        assert begun.end.step == step
        assert [mb.round for mb in micro_batches] == list(range(begun.rounds))
        assert {mb.step for mb in micro_batches} == {step}
        assert sum(sum(mb.lengths) for mb in micro_batches) == begun.token_count
        assert sum(mb.target_count for mb in micro_batches) == begun.target_count
        lengths += [length for mb in micro_batches for length in mb.lengths]
        stream.ack(step)
    ended = stream.take("end_of_run")
    assert ended.reason == "max_epochs"
    assert ended.end.epoch == 1
    assert sorted(lengths) == sorted(LENGTHS)
    stream.half_close()
    shown = job.shown()
    assert shown.ended
    assert shown.consumed_step == shown.sealed_step == step
    assert shown.epoch_samples == len(LENGTHS)


def test_a_step_begins_only_when_every_rank_acknowledged_the_one_two_before(server: RunningServer, job: Job) -> None:
    job.create()
    attempt = job.begin(world_size=2)
    fast, slow = job.stream(attempt, 0), job.stream(attempt, 1)
    for stream in (fast, slow):
        stream.take_step()
        stream.take_step()
    fast.ack(1)
    fast.ack(2)
    eventually(lambda: job.shown().acked_steps == [2, 0])
    assert job.shown().sealed_step == 2
    assert fast.received.empty()
    slow.ack(1)
    assert fast.take_step()[0].step == 3
    eventually(lambda: metric(server, "dataserver_waiting_streams", cause="pacing") == 2)
    assert job.shown().sealed_step == 3


def test_no_more_micro_batches_come_than_credits_were_given(server: RunningServer, job: Job) -> None:
    job.create(step_samples=12)
    stream = job.stream(job.begin(), credits=2)
    begun = stream.take("step_begun")
    assert begun.rounds > 3
    for granted in (0, 1):
        if granted:
            stream.credit(granted)
        for _ in range(granted or 2):
            stream.take("micro_batch")
        sent = 2 + granted
        eventually(lambda: metric(server, "dataserver_waiting_streams", cause="credits") == 1)
        assert metric(server, "dataserver_micro_batches_sent_total") == sent
        assert stream.received.empty()


def test_without_a_credit_no_step_is_sealed(server: RunningServer, job: Job) -> None:
    job.create(step_samples=2)
    stream = job.stream(job.begin(), credits=1)
    begun, _ = stream.take_step(grant=False)
    assert begun.rounds == 1
    stream.ack(1)
    eventually(lambda: metric(server, "dataserver_waiting_streams", cause="credits") == 1)
    assert job.shown().sealed_step == 1


def test_ranks_with_one_dp_rank_get_equal_bytes_and_are_counted_one_by_one(job: Job) -> None:
    job.create()
    attempt = job.begin(world_size=4, dp_world_size=2)
    streams = [job.stream(attempt, rank, dp_rank=rank // 2) for rank in range(4)]
    steps = [stream.take_step() for stream in streams]
    payloads = [[mb.SerializeToString() for mb in micro_batches] for _, micro_batches in steps]
    assert payloads[0] == payloads[1]
    assert payloads[2] == payloads[3]
    assert payloads[0] != payloads[2]
    assert len({begun.plan_digest for begun, _ in steps}) == 1
    for stream in streams:
        stream.take_step()
    for stream in streams[:3]:
        stream.ack(1)
    eventually(lambda: job.shown().acked_steps == [1, 1, 1, 0])
    assert job.shown().consumed_step == 0


def test_two_servers_on_one_ledger_agree_byte_for_byte(serve, tmp_path) -> None:
    ledger_url = f"sqlite:///{tmp_path}/ledger.db"
    first, second = serve(ledger_url=ledger_url), serve(ledger_url=ledger_url)
    with job_on(first) as job:
        job.create()
        attempt = job.begin(world_size=2, dp_world_size=1)
        streams = [job.stream(attempt, 0, dp_rank=0), job.stream(attempt, 1, dp_rank=0, server=second)]
        for step in range(1, 8):
            (begun, mine), (other_begun, others) = (stream.take_step() for stream in streams)
            assert begun.step == step
            assert begun == other_begun
            assert [mb.SerializeToString() for mb in mine] == [mb.SerializeToString() for mb in others]
            for stream in streams:
                stream.ack(step)
        eventually(lambda: job.shown().acked_steps == [7, 7])


def test_a_newer_open_of_a_rank_ends_the_older_stream(job: Job) -> None:
    job.create()
    attempt = job.begin()
    older = job.stream(attempt)
    older.take_step()
    newer = job.stream(attempt, next_step=2)
    error = older.error()
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "opened another stream" in error.details()
    assert newer.take_step()[0].step == 2


def test_a_wrong_open_leaves_the_rank_s_stream_alone(job: Job) -> None:
    job.create()
    attempt = job.begin()
    stream = job.stream(attempt)
    stream.take_step()
    assert reason_of(job.open(attempt, dp_rank=1).error()) == "AttemptMismatchError"
    assert stream.take_step()[0].step == 2
    stream.ack(1)
    assert stream.take_step()[0].step == 3


def test_a_stream_of_an_older_attempt_ends_at_once(job: Job) -> None:
    job.create()
    stream = job.stream(job.begin())
    stream.take_step()
    job.begin(take_over=True, holder="another")
    error = stream.error()
    assert reason_of(error) == "StaleAttemptError"
    assert "attempt 2" in error.details()


def test_a_stream_of_an_older_attempt_ends_on_another_server_too(serve, tmp_path) -> None:
    ledger_url = f"sqlite:///{tmp_path}/ledger.db"
    first, second = serve(ledger_url=ledger_url), serve(ledger_url=ledger_url)
    with job_on(first) as job:
        job.create()
        stream = job.stream(job.begin(), server=second)
        stream.take_step()
        job.begin(take_over=True, holder="another")
        assert reason_of(stream.error()) == "StaleAttemptError"


def test_a_rank_that_comes_back_after_the_last_step_is_told_of_the_end(job: Job) -> None:
    job.create(max_steps=2)
    attempt = job.begin()
    stream = job.stream(attempt)
    stream.take_step()
    assert stream.take_step()[0].last
    stream.cancel()
    again = job.stream(attempt, next_step=3)
    again.ack(2)
    assert again.take("end_of_run").end.step == 2
    again.half_close()


def test_a_rank_may_take_a_sealed_step_again_on_a_server_that_never_saw_it(serve, tmp_path) -> None:
    ledger_url = f"sqlite:///{tmp_path}/ledger.db"
    first, second = serve(ledger_url=ledger_url), serve(ledger_url=ledger_url)
    with job_on(first) as job:
        job.create()
        attempt = job.begin()
        stream = job.stream(attempt)
        for step in (1, 2, 3):
            _, before = stream.take_step()
            if step < 3:
                stream.ack(step)
        eventually(lambda: job.shown().consumed_step == 2)
        stream.cancel()
        again = job.stream(attempt, next_step=3, server=second)
        begun, after = again.take_step()
        assert begun.step == 3
        assert [mb.SerializeToString() for mb in before] == [mb.SerializeToString() for mb in after]


@pytest.mark.parametrize("leave", ["half_close", "cancel"])
def test_a_client_that_leaves_frees_its_attempt(job: Job, leave: str) -> None:
    job.create()
    stream = job.stream(job.begin())
    stream.take_step()
    getattr(stream, leave)()

    limit_s = 0 if leave == "half_close" else PATIENCE_S
    eventually(lambda: job.begin_error(holder="another") is None, limit_s)


def test_a_client_that_leaves_while_the_ledger_is_away_frees_its_attempt_though_others_stream_on(
    serve, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("dataserver.database.engine.BUSY_TIMEOUT_S", 0.1)
    server = serve(ledger_url=f"sqlite:///{tmp_path}/ledger.db", lease_s=1.0)
    with job_on(server) as leaving, closing(Job(server, "other")) as staying:
        for job in (leaving, staying):
            job.create()
            stream = job.stream(job.begin())
            # As many as go ahead of acks: nothing else is sealed meanwhile.
            stream.take_step()
            stream.take_step()
            if job is leaving:
                gone = stream
        lock = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        gone.cancel()
        eventually(lambda: time.time() > 1.0 + staying.shown().attempt.lease_expire_time.ToNanoseconds() / 1e9)
        lock.rollback()
        lock.close()
        eventually(lambda: leaving.begin_error(holder="another") is None)
        eventually(lambda: staying.shown().attempt.lease_expire_time.ToNanoseconds() / 1e9 > time.time())
        with pytest.raises(AttemptAliveError):
            raise staying.begin_error(holder="another")


def test_a_rank_of_a_deleted_run_does_not_get_into_the_one_created_after_it(job: Job) -> None:
    job.create()
    stale = job.begin()
    job.stream(stale).half_close()
    lost_id = job.attempt_ids[stale]
    job.runs.DeleteRun(run_service_pb2.DeleteRunRequest(run="run"), timeout=PATIENCE_S)
    job.create()
    assert job.begin(holder="another") == stale
    ours, job.attempt_ids[stale] = job.attempt_ids[stale], lost_id
    error = job.open(stale).error()
    assert reason_of(error) == "StaleAttemptError"
    assert lost_id in error.details()
    job.attempt_ids[stale] = ours
    assert job.stream(stale).take_step()[0].step == 1


def test_clients_that_leave_in_the_middle_of_an_open_leave_nothing_behind(job: Job) -> None:
    job.create()
    attempt = job.begin()
    for _ in range(40):
        job.open(attempt).call.cancel()
    eventually(lambda: job.begin_error(holder="another") is None)
    assert job.stream(attempt + 1).take_step()[0].step == 1


def test_a_store_that_changes_while_it_is_served_ends_the_stream(tmp_path) -> None:
    store = write_store(tmp_path / "chat", lengths=LENGTHS)
    with running_server({"chat": store}) as server, job_on(server) as job:
        job.create()
        stream = job.stream(job.begin())
        stream.take_step()
        stream.take_step()
        (store / "data-00000-of-00001.arrow").write_bytes(b"something else")
        stream.ack(1)
        error = stream.error()
        assert error.code() == grpc.StatusCode.DATA_LOSS
        assert reason_of(error) == "StoreDamagedError"
        assert "data-00000-of-00001.arrow" in error.details()
        assert job.shown().sealed_step == 2


def test_a_wait_that_expires_names_the_ranks_that_are_waited_for(serve) -> None:
    with job_on(serve(pacing_wait_s=2.0)) as job:
        job.create()
        attempt = job.begin(world_size=3)
        stream = job.stream(attempt, 1)
        stream.take_step()
        stream.take_step()
        stream.ack(2)
        error = stream.error()
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert "rank 0, 2 to acknowledge step 1 before step 3" in error.details()


def test_a_stream_without_an_open_ends(serve) -> None:
    from dataserver.v1.batch_service_pb2_grpc import BatchServiceStub

    with job_on(serve(open_wait_s=0.2)) as job:
        silent: queue.SimpleQueue = queue.SimpleQueue()
        call = BatchServiceStub(job.channel).StreamMicroBatches(iter(silent.get, None), timeout=PATIENCE_S)
        with pytest.raises(grpc.RpcError) as raised:
            next(call)
        silent.put(None)
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_acks_of_many_ranks_all_count(job: Job) -> None:
    job.create()
    ranks = 16
    attempt = job.begin(world_size=ranks, dp_world_size=1)
    streams = [job.stream(attempt, rank, dp_rank=0) for rank in range(ranks)]
    for step in range(1, 6):
        for stream in streams:
            stream.take_step()
        for stream in streams:
            stream.ack(step)
    eventually(lambda: set(job.shown().acked_steps) == {5})


def test_a_sync_flag_is_sent_with_the_step_and_its_micro_batches(serve, tmp_path) -> None:
    from dataserver.ledger import open_ledger

    ledger_url = f"sqlite:///{tmp_path}/ledger.db"
    server = serve(ledger_url=ledger_url)
    ledger = open_ledger(ledger_url, lease_s=30.0)
    with job_on(server) as job:
        job.create()
        ledger.request_sync("run", 2)
        stream = job.stream(job.begin())
        flags = []
        for step in (1, 2, 3):
            begun, micro_batches = stream.take_step()
            flags.append((begun.sync_weights, {mb.sync_weights for mb in micro_batches}))
            stream.ack(step)
        assert flags == [(False, {False}), (True, {True}), (False, {False})]
    ledger.close()


def test_a_watched_run_is_shown_as_it_changes(job: Job) -> None:
    job.create()
    watch = job.runs.WatchRun(run_service_pb2.WatchRunRequest(run="run"), timeout=PATIENCE_S)
    assert next(watch).run.sealed_step == 0
    stream = job.stream(job.begin())
    stream.take_step()
    seen = next(shown.run for shown in watch if shown.run.sealed_step)
    assert seen.attempt.number == 1
    watch.cancel()
