"""Requests that are wrong get a status that says why, and the server serves on."""

import base64
from itertools import count

import pytest
from hostilelab.methods import ack, all_methods, batch_spec, begin, credit, open_of
from hostilelab.stage import RUNS, begin_attempt, create, set_stage
from hostilelab.wire import OK, Talk, Wire

from dataserver.v1 import batch_service_pb2, cursor_pb2, cursor_service_pb2, run_pb2, run_service_pb2

INVALID = ("INVALID_ARGUMENT", "INVALID_REQUEST")
MISMATCH = ("FAILED_PRECONDITION", "ATTEMPT_MISMATCH")

CURSORS = "/dataserver.v1.CursorService/"
NUMBERS = count(1)

# No field has number 0, so that these bytes are no message of any kind.
GARBAGE = b"\x00\xff" * 40

UNARY = [method for method in all_methods() if not method.client_streams and not method.server_streams]


@pytest.mark.parametrize(
    ("fields", "verdict", "named"),
    [
        ({"world_rank": -1}, INVALID, "world_rank = -1"),
        ({"dp_rank": -1}, INVALID, "dp_rank = -1"),
        ({"world_rank": 2}, MISMATCH, "2"),
        ({"world_rank": 2**31 - 1}, INVALID, "2147483647"),
        ({"dp_rank": 2}, MISMATCH, "2"),
        ({"next_step": 0}, INVALID, "next_step = 0"),
        ({"next_step": -(2**63)}, INVALID, "next_step"),
        ({"next_step": 2**63 - 1}, MISMATCH, "9223372036854775807"),
        ({"attempt": 0}, INVALID, "attempt = 0"),
        ({"attempt": 99}, MISMATCH, "99"),
        ({"credits": 0}, INVALID, "credits = 0"),
        ({"credits": -5}, INVALID, "credits = -5"),
        ({"credits": 2**31 - 1}, INVALID, "credits = 2147483647"),
    ],
)
def test_an_open_with_a_wrong_field_is_refused_by_name(wire: Wire, fields, verdict, named):
    stage = set_stage(wire, world_size=2)
    request = open_of(stage.run, stage.attempt, **fields)
    status, answers = wire.conversation([request.SerializeToString()], half_close=False)
    assert (status.verdict, answers) == (verdict, [])
    assert named in status.words


def test_an_open_of_an_unknown_run_is_refused(wire: Wire):
    status, _ = wire.conversation(
        [open_of("nobody", run_pb2.Attempt(number=1, attempt_id="nobody's")).SerializeToString()], half_close=False
    )
    assert status.verdict == ("NOT_FOUND", "RUN_NOT_FOUND")
    assert "nobody" in status.words


@pytest.mark.parametrize("first", [ack(1), credit(1), batch_service_pb2.StreamMicroBatchesRequest()])
def test_a_stream_that_does_not_begin_with_an_open_is_refused(wire: Wire, first):
    status, answers = wire.conversation([first.SerializeToString()], half_close=False)
    assert (status.verdict, answers) == (INVALID, [])
    assert "open" in status.words


def test_a_stream_that_is_closed_before_its_open_is_refused(wire: Wire):
    status, _ = wire.conversation([])
    assert status.verdict == INVALID


@pytest.mark.parametrize(
    ("second", "named"),
    [
        ("open", "open"),
        (batch_service_pb2.StreamMicroBatchesRequest(), "empty"),
        (ack(-1), "-1"),
        (ack(2), "step 2"),
        (ack(2**63 - 1), "9223372036854775807"),
        (credit(0), "credits = 0"),
        (credit(-1), "credits = -1"),
        (credit(2**31 - 1), "credits = 2147483647"),
    ],
)
def test_a_wrong_message_in_an_open_stream_ends_it(wire: Wire, second, named):
    stage = set_stage(wire)
    opening = open_of(stage.run, stage.attempt, credits=1)
    talk = Talk(wire, [opening.SerializeToString()])
    while not talk.hear().micro_batches:
        pass
    talk.say((opening if second == "open" else second).SerializeToString())
    status, _ = talk.rest()
    assert status.verdict == INVALID
    assert named in status.words


def test_credits_that_pile_up_beyond_any_need_are_refused(wire: Wire):
    stage = set_stage(wire, world_size=2)  # rank 1 stays away, so that the step after next is never due
    messages = [open_of(stage.run, stage.attempt, credits=1024), *[credit(1024)] * 4]
    status, _ = wire.conversation([message.SerializeToString() for message in messages], half_close=False)
    assert status.verdict == INVALID
    assert "1024" in status.words


def test_ranks_that_disagree_about_who_they_are_are_refused(wire: Wire):
    stage = set_stage(wire, world_size=2)
    first = Talk(wire, [open_of(stage.run, stage.attempt, world_rank=1, dp_rank=1).SerializeToString()])
    assert first.hear().WhichOneof("message") == "opened"
    status, _ = wire.conversation([open_of(stage.run, stage.attempt, world_rank=1, dp_rank=0).SerializeToString()])
    assert status.verdict == MISMATCH
    assert first.hear().WhichOneof("message") == "step_begun"
    first.cancel()


def test_a_stale_attempt_is_refused_on_open_and_on_commit(wire: Wire):
    stage = set_stage(wire)
    newer = begin_attempt(wire, begin(stage.run, holder="newer"))
    assert newer.number > stage.attempt.number
    status, _ = wire.conversation([open_of(stage.run, stage.attempt).SerializeToString()], half_close=False)
    assert status.verdict == ("FAILED_PRECONDITION", "STALE_ATTEMPT")
    commit = cursor_service_pb2.CommitCursorRequest(
        run=stage.run,
        attempt=stage.attempt.number,
        attempt_id=stage.attempt.attempt_id,
        cursor=cursor_pb2.Cursor(order_fingerprint=stage.fingerprint),
    )
    status, _ = wire.unary(CURSORS + "CommitCursor", commit.SerializeToString())
    assert status.verdict == ("FAILED_PRECONDITION", "STALE_ATTEMPT")


def test_an_open_stream_ends_when_its_attempt_is_displaced(wire: Wire):
    stage = set_stage(wire)
    talk = Talk(wire, [open_of(stage.run, stage.attempt, credits=1).SerializeToString()])
    assert talk.hear().WhichOneof("message") == "opened"
    begin_attempt(wire, begin(stage.run, holder="newer"))
    status, _ = talk.rest()
    assert status.verdict == ("FAILED_PRECONDITION", "STALE_ATTEMPT")


@pytest.mark.parametrize("fingerprint", ["0" * 32, "no fingerprint at all"])
def test_a_foreign_cursor_is_refused_by_begin_and_by_commit(wire: Wire, fingerprint: str):
    stage = set_stage(wire)
    cursor = cursor_pb2.Cursor(order_fingerprint=fingerprint, step=1, position=10)
    resume = begin(stage.run, mode=run_service_pb2.BEGIN_MODE_RESUME, cursor=cursor, version=1)
    status, _ = wire.unary(RUNS + "BeginAttempt", resume.SerializeToString())
    assert status.verdict == ("FAILED_PRECONDITION", "FOREIGN_CURSOR")
    commit = cursor_service_pb2.CommitCursorRequest(
        run=stage.run, attempt=stage.attempt.number, attempt_id=stage.attempt.attempt_id, cursor=cursor
    )
    status, _ = wire.unary(CURSORS + "CommitCursor", commit.SerializeToString())
    assert status.verdict == ("FAILED_PRECONDITION", "FOREIGN_CURSOR")


@pytest.mark.parametrize(
    "position",
    [{"position": 70}, {"position": -1}, {"epoch": -1}, {"stage": 3}, {"step": -1}, {"source_positions": [1]}],
)
def test_a_cursor_that_no_step_ends_at_is_refused(wire: Wire, position):
    stage = set_stage(wire)
    cursor = cursor_pb2.Cursor(order_fingerprint=stage.fingerprint, **position)
    resume = begin(stage.run, mode=run_service_pb2.BEGIN_MODE_RESUME, cursor=cursor, version=cursor.step)
    status, _ = wire.unary(RUNS + "BeginAttempt", resume.SerializeToString())
    assert status.verdict == INVALID


@pytest.mark.parametrize(
    "fields",
    [
        {"world_size": 0}, {"world_size": -1}, {"world_size": 2**31 - 1, "dp_world_size": 1}, {"dp_world_size": 0},
        {"world_size": 4, "dp_world_size": 3}, {"mode": 0}, {"mode": 77}, {"holder": ""}, {"holder": "x" * 100_000},
        {"run": ""}, {"run": "../up"}, {"run": "x" * 100_000}, {"run": "\u4e2d" * 2000}, {"holder": "\u4e2d" * 2000},
    ],
)  # fmt: skip
def test_an_attempt_with_a_wrong_field_is_refused(wire: Wire, fields):
    stage = set_stage(wire)
    request = begin(**{"run": stage.run} | fields)
    status, _ = wire.unary(RUNS + "BeginAttempt", request.SerializeToString())
    assert status.verdict == INVALID


@pytest.mark.parametrize("method", UNARY, ids=lambda method: method.path)
def test_a_unary_method_that_gets_garbage_says_so(wire: Wire, method):
    status, _ = wire.unary(method.path, GARBAGE)
    assert status.verdict == INVALID
    assert str(len(GARBAGE)) in status.words


def test_streaming_methods_that_get_garbage_say_so(wire: Wire):
    assert wire.server_stream(RUNS + "WatchRun", GARBAGE).verdict == INVALID
    assert wire.conversation([GARBAGE], half_close=False)[0].verdict == INVALID
    stage = set_stage(wire)
    opening = open_of(stage.run, stage.attempt).SerializeToString()
    assert wire.conversation([opening, GARBAGE], half_close=False)[0].verdict == INVALID


@pytest.mark.parametrize("method", all_methods(), ids=lambda method: method.path)
def test_a_message_beyond_the_limit_is_refused_before_it_is_read(wire: Wire, method):
    too_large = b"\x0a" + bytes(5 * 2**20)
    if method.client_streams:
        status, _ = wire.conversation([too_large], half_close=False)
    elif method.server_streams:
        status = wire.server_stream(method.path, too_large)
    else:
        status, _ = wire.unary(method.path, too_large)
    assert status.code == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("path", ["/dataserver.v1.RunService/Nothing", "/nowhere.v1.Service/Method", "/", "/a"])
def test_an_unknown_method_is_unimplemented(wire: Wire, path: str):
    assert wire.unary(path, b"")[0].code == "UNIMPLEMENTED"


@pytest.mark.parametrize(
    "after",
    [
        "cursors:9223372036854775808",
        "cursors:9999999999999999999",
        "cursors:-1",
        "cursors:x",
        "runs:a",
        "",
        "cursors:-",
    ],
)
def test_a_forged_page_token_is_refused_or_harmless(wire: Wire, after: str):
    stage = set_stage(wire)
    token = base64.urlsafe_b64encode(after.encode()).decode() or "!"
    request = cursor_service_pb2.ListCursorsRequest(run=stage.run, page_token=token)
    status, _ = wire.unary(CURSORS + "ListCursors", request.SerializeToString())
    assert status.verdict == (INVALID if after != "cursors:-1" else OK.verdict)


@pytest.mark.parametrize("batch", [{"step_samples": 2**62}, {"step_samples": 2**22}, {"step_tokens": 2**62}])
def test_a_step_of_impossible_size_is_refused_before_it_takes_memory(wire: Wire, server, batch):
    before = server.vitals()
    run = create(wire, f"huge-{next(NUMBERS)}").name
    begin_attempt(wire, begin(run, batch=batch_spec(max_epochs=0, **batch)))
    request = cursor_service_pb2.DescribeStepRequest(run=run, step=1)
    status, _ = wire.unary(CURSORS + "DescribeStep", request.SerializeToString())
    assert status.verdict == ("INVALID_ARGUMENT", "INVALID_SPEC")
    assert server.vitals().memory_mib < before.memory_mib + 500
