"""Clients that vanish, stall or say nothing cost the server nothing that lasts."""

import socket
from contextlib import ExitStack

import grpc
import pytest
from hostilelab.methods import begin, credit, open_of
from hostilelab.stage import RUNS, begin_attempt, set_stage
from hostilelab.victim import POOL_THREADS, VictimServer
from hostilelab.wire import OK, Talk, Wire

from dataserver.v1 import cursor_service_pb2, run_pb2, run_service_pb2

SILENT_CLIENTS = 200
SENT = "dataserver_micro_batches_sent_total"


def test_clients_that_connect_and_say_nothing_keep_nobody_out(server: VictimServer, wire: Wire):
    set_stage(wire)
    before = server.vitals()
    host, port = server.endpoint.rsplit(":", 1)
    with ExitStack() as silent:
        for _ in range(SILENT_CLIENTS):
            silent.enter_context(socket.create_connection((host, int(port)), timeout=60))
        set_stage(wire)
        assert server.vitals().threads <= before.threads + POOL_THREADS
    after = server.settled(before)
    assert after.sockets <= before.sockets


@pytest.mark.parametrize(
    "noise", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 4096, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 512]
)
def test_bytes_that_are_no_http2_end_only_their_connection(server: VictimServer, wire: Wire, noise: bytes):
    set_stage(wire)
    before = server.vitals()
    host, port = server.endpoint.rsplit(":", 1)
    for _ in range(20):
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(noise)
    assert server.settled(before).sockets <= before.sockets


def test_clients_that_open_and_vanish_leave_no_stream_and_free_their_rank(server: VictimServer):
    patient = Wire(server.endpoint)
    stage = set_stage(patient)
    before = server.settled(server.vitals())
    for _ in range(20):
        hasty = Wire(server.endpoint)
        talk = Talk(hasty, [open_of(stage.run, stage.attempt, credits=1).SerializeToString()])
        assert talk.hear().WhichOneof("message") == "opened"
        hasty.close()
        talk.half_close()
    after = server.settled(before)
    assert after.streams == 0
    assert after.sockets <= before.sockets
    begin_attempt(patient, begin(stage.run, holder="next", take_over=False))
    patient.close()


def test_a_client_that_never_grants_credits_gets_no_more_than_it_asked_for(server: VictimServer, wire: Wire):
    stage = set_stage(wire)
    assert server.settled(server.vitals()).streams == 0
    before = server.metric(SENT)
    talk = Talk(wire, [open_of(stage.run, stage.attempt, credits=1).SerializeToString()])
    assert [talk.hear().WhichOneof("message") for _ in range(2)] == ["opened", "step_begun"]
    assert len(talk.hear().micro_batches) == 1
    # A micro-batch is counted soon after it was sent.
    while server.metric(SENT) == before:
        pass
    assert set_stage(wire).attempt.number == 1
    assert server.metric(SENT) == before + 1
    talk.say(credit(1).SerializeToString())
    assert len(talk.hear().micro_batches) == 1
    talk.cancel()


def test_a_stream_that_is_half_closed_in_the_middle_of_a_step_ends_well_at_once(server: VictimServer, wire: Wire):
    stage = set_stage(wire)
    before = server.vitals()
    for _ in range(10):
        status, answers = wire.conversation([open_of(stage.run, stage.attempt, credits=1).SerializeToString()])
        assert status == OK
        assert len(answers) <= 3
    assert server.settled(before).streams == 0


def test_a_newer_open_of_a_rank_ends_the_older_stream(wire: Wire):
    stage = set_stage(wire)
    opening = open_of(stage.run, stage.attempt, credits=1).SerializeToString()
    older = Talk(wire, [opening])
    assert older.hear().WhichOneof("message") == "opened"
    newer = Talk(wire, [opening])
    assert newer.hear().WhichOneof("message") == "opened"
    status, _ = older.rest()
    assert status.verdict == ("FAILED_PRECONDITION", "FAILED_PRECONDITION")
    assert newer.hear().WhichOneof("message") == "step_begun"
    newer.cancel()


def test_many_streams_that_open_in_vain_leave_nothing_behind(server: VictimServer, wire: Wire):
    set_stage(wire)
    before = server.vitals()
    for _ in range(200):
        with pytest.raises(grpc.RpcError):
            Talk(wire, [open_of("nobody", run_pb2.Attempt(number=1, attempt_id="nobody's")).SerializeToString()]).hear()
    after = server.settled(before)
    assert after.streams == 0
    assert after.sockets <= before.sockets


def test_streams_that_never_open_keep_nobody_waiting(server: VictimServer, wire: Wire):
    set_stage(wire)
    before = server.vitals()
    silent = Wire(server.endpoint)
    talks = [Talk(silent) for _ in range(SILENT_CLIENTS)]
    set_stage(wire)
    for talk in talks:
        talk.cancel()
    silent.close()
    after = server.settled(before)
    assert after.streams == 0
    assert after.sockets <= before.sockets


def test_calls_that_their_client_gives_up_leave_nothing_behind(server: VictimServer, wire: Wire):
    stage = set_stage(wire)
    before = server.vitals()
    describe = cursor_service_pb2.DescribeStepRequest(run=stage.run, step=5).SerializeToString()
    for _ in range(100):
        wire.abandon("/dataserver.v1.CursorService/DescribeStep", describe)
        wire.abandon(RUNS + "WatchRun", run_service_pb2.WatchRunRequest(run=stage.run).SerializeToString())
    after = server.settled(before)
    assert after.streams == 0
    assert after.sockets <= before.sockets


def test_headers_of_absurd_size_end_only_their_call(wire: Wire):
    patient = Talk(wire)
    status = wire.with_header("x-large", "a" * 100_000, RUNS + "GetRun")
    assert status.code == "RESOURCE_EXHAUSTED"
    stage = set_stage(wire)
    patient.say(open_of(stage.run, stage.attempt).SerializeToString())
    assert patient.hear().WhichOneof("message") == "opened"
    patient.cancel()
