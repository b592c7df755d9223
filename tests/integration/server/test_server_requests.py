"""Requests that are wrong get a status and a reason that say how, and the server serves on."""

import logging
import sqlite3
from collections.abc import Callable

import grpc
import pytest
from serverlab import PATIENCE_S, Job, batch_spec, job_on, order_spec

from dataserver import errors
from dataserver.testing import RunningServer, running_server, write_store
from dataserver.v1 import batch_service_pb2 as batch_pb
from dataserver.v1 import cursor_pb2, cursor_service_pb2, run_service_pb2, run_spec_pb2, store_service_pb2
from dataserver.v1.cursor_service_pb2_grpc import CursorServiceStub
from dataserver.v1.store_service_pb2_grpc import StoreServiceStub
from dataserver.wire.status import error_of


@pytest.fixture(scope="module")
def shared(chat_store):
    with running_server({"chat": chat_store}) as server, job_on(server) as job:
        job.create()
        job.begin(world_size=2)
        yield job


def create(job: Job, **fields) -> None:
    request = {"name": "other", "spec": run_spec_pb2.RunSpec(order=order_spec(), batch=batch_spec())} | fields
    job.runs.CreateRun(run_service_pb2.CreateRunRequest(**request), timeout=PATIENCE_S)


def spec(order: dict | None = None, batch: dict | None = None, **fields) -> run_spec_pb2.RunSpec:
    return run_spec_pb2.RunSpec(order=order_spec(**order or {}), batch=batch_spec(**batch or {}), **fields)


def describe(job: Job, step: int, **fields) -> None:
    request = cursor_service_pb2.DescribeStepRequest(run="run", step=step, **fields)
    CursorServiceStub(job.channel).DescribeStep(request, timeout=PATIENCE_S)


def commit(job: Job, **fields) -> None:
    request = cursor_service_pb2.CommitCursorRequest(
        **{"run": "run", "attempt": 1, "attempt_id": "never issued"} | fields
    )
    CursorServiceStub(job.channel).CommitCursor(request, timeout=PATIENCE_S)


def samples(job: Job, begin: int, end: int, **fields) -> None:
    request = store_service_pb2.ListSamplesRequest(store="chat", begin_row=begin, end_row=end, **fields)
    StoreServiceStub(job.channel).ListSamples(request, timeout=PATIENCE_S)


def second_trainer(job: Job) -> None:
    job.stream(1, 0)
    job.begin(holder="another")


def page(job: Job, token: str = "", size: int = 0) -> None:
    job.runs.ListRuns(run_service_pb2.ListRunsRequest(page_size=size, page_token=token), timeout=PATIENCE_S)


WRONG_CALLS: list[tuple[str, Callable[[Job], object], type[errors.DataServerError], str]] = [
    ("no_name", lambda job: create(job, name=""), errors.InvalidRequestError, "run name ''"),
    ("long_name", lambda job: create(job, name="x" * 129), errors.InvalidRequestError, "at most 128"),
    ("path_as_name", lambda job: create(job, name="../etc"), errors.InvalidRequestError, "letters, digits"),
    ("no_spec", lambda job: create(job, spec=None), errors.InvalidSpecError, "no order spec"),
    ("unknown_store", lambda job: create(job, spec=spec({"store": "nope"})), errors.StoreNotFoundError, "it has chat"),
    ("path_as_store", lambda job: create(job, spec=spec({"store": "/etc"})), errors.StoreNotFoundError, "'/etc'"),
    ("small_vocabulary", lambda job: create(job, spec=spec(vocab_size=10)), errors.InvalidSpecError, "row "),
    ("no_room", lambda job: create(job, spec=spec(batch={"micro_batch_tokens": 32})), errors.InvalidSpecError, "64"),
    ("huge_message", lambda job: create(job, spec=spec(batch={"micro_batch_tokens": 2**28})),
     errors.InvalidSpecError, "max_message_bytes"),
    ("same_name_other_order", lambda job: create(job, name="run", spec=spec({"seed": 8})),
     errors.RunConflictError, "seed"),
    ("negative_seed", lambda job: create(job, spec=spec({"seed": -1})), errors.InvalidSpecError, "seed"),
    ("unknown_run", lambda job: describe_of("gone", job), errors.RunNotFoundError, "gone"),
    ("no_mode", lambda job: job.begin(mode=0), errors.InvalidRequestError, "mode"),
    ("world_size_0", lambda job: job.begin(world_size=0), errors.InvalidRequestError, "world_size"),
    ("world_size_negative", lambda job: job.begin(world_size=-3), errors.InvalidRequestError, "world_size"),
    ("dp_does_not_divide", lambda job: job.begin(4, 3), errors.InvalidRequestError, "divide"),
    ("no_holder", lambda job: job.begin(holder=""), errors.InvalidRequestError, "holder"),
    ("second_trainer", second_trainer, errors.AttemptAliveError, "'holder' holds it"),
    ("foreign_cursor", lambda job: job.begin(mode=2, cursor=cursor_pb2.Cursor(order_fingerprint="00", step=1)),
     errors.ForeignCursorError, "another order"),
    ("step_0", lambda job: describe(job, 0), errors.InvalidRequestError, "step = 0"),
    ("step_far_ahead", lambda job: describe(job, 20_000), errors.OutOfRangeError, "10000"),
    ("step_beyond_int", lambda job: describe(job, 2**63 - 1), errors.OutOfRangeError, "ahead"),
    ("dp_rank_too_high", lambda job: describe(job, 1, dp_world_size=2, dp_rank=2),
     errors.InvalidRequestError, "dp_rank = 2"),
    ("dp_world_size_negative", lambda job: describe(job, 1, dp_world_size=-1),
     errors.InvalidRequestError, "dp_world_size"),
    ("commit_without_cursor", commit, errors.InvalidRequestError, "cursor is missing"),
    ("commit_of_no_attempt", lambda job: commit(job, attempt=0, cursor=cursor_pb2.Cursor()),
     errors.InvalidRequestError, "attempt = 0"),
    ("long_uri", lambda job: commit(job, cursor=cursor_pb2.Cursor(order_fingerprint="0"), checkpoint_uri="x" * 5000),
     errors.InvalidRequestError, "checkpoint_uri"),
    ("unknown_version", lambda job: version(job, 99), errors.VersionNotFoundError, "99"),
    ("negative_version", lambda job: version(job, -1), errors.InvalidRequestError, "version = -1"),
    ("rows_backwards", lambda job: samples(job, 5, 5), errors.InvalidRequestError, "end_row"),
    ("too_many_rows", lambda job: samples(job, 0, 1001), errors.InvalidRequestError, "end_row"),
    ("row_beyond", lambda job: samples(job, 30, 31), errors.OutOfRangeError, "rows 0 to 29"),
    ("negative_row", lambda job: samples(job, -1, 3), errors.OutOfRangeError, "begin_row = -1"),
    ("max_length_1", lambda job: samples(job, 0, 1, max_length=1), errors.InvalidRequestError, "max_length = 1"),
    ("page_size", lambda job: page(job, size=1001), errors.InvalidRequestError, "page_size = 1001"),
    ("page_size_negative", lambda job: page(job, size=-1), errors.InvalidRequestError, "page_size = -1"),
    ("page_token", lambda job: page(job, "garbage"), errors.InvalidRequestError, "page_token"),
    ("page_token_no_text", lambda job: page(job, "____"), errors.InvalidRequestError, "page_token"),
]  # fmt: skip


def describe_of(run: str, job: Job) -> None:
    request = cursor_service_pb2.DescribeStepRequest(run=run, step=1)
    CursorServiceStub(job.channel).DescribeStep(request, timeout=PATIENCE_S)


def version(job: Job, number: int) -> None:
    request = cursor_service_pb2.GetCursorRequest(run="run", version=number)
    CursorServiceStub(job.channel).GetCursor(request, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("call", "error", "words"), [wrong[1:] for wrong in WRONG_CALLS], ids=[wrong[0] for wrong in WRONG_CALLS]
)
def test_a_wrong_call_is_refused_with_a_reason(shared: Job, call, error, words: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        call(shared)
    assert type(error_of(raised.value)) is error, raised.value
    assert words in raised.value.details()
    assert shared.shown().name == "run"


WRONG_OPENS = [
    ({"attempt": 0}, errors.InvalidRequestError, "open.attempt = 0"),
    ({"attempt": 2}, errors.DataServerError, "attempt 2"),
    ({"rank": -1, "dp_rank": 0}, errors.InvalidRequestError, "open.world_rank = -1"),
    ({"rank": 2}, errors.DataServerError, "2"),
    ({"dp_rank": -1}, errors.InvalidRequestError, "open.dp_rank = -1"),
    ({"dp_rank": 7}, errors.DataServerError, "7"),
    ({"next_step": 0}, errors.InvalidRequestError, "open.next_step = 0"),
    ({"next_step": 9}, errors.DataServerError, "9"),
    ({"credits": 0}, errors.InvalidRequestError, "open.credits = 0"),
    ({"credits": -5}, errors.InvalidRequestError, "open.credits = -5"),
    ({"credits": 1025}, errors.InvalidRequestError, "1 to 1024"),
]


@pytest.mark.parametrize(("fields", "error", "words"), WRONG_OPENS, ids=[str(wrong[0]) for wrong in WRONG_OPENS])
def test_a_wrong_open_is_refused_with_a_reason(shared: Job, fields: dict, error: type, words: str) -> None:
    raised = shared.open(**fields).error()
    found = error_of(raised)
    assert isinstance(found, error)
    assert not isinstance(found, errors.InternalError | errors.UnavailableError)
    assert words in found.message


def request(**fields) -> batch_pb.StreamMicroBatchesRequest:
    return batch_pb.StreamMicroBatchesRequest(**fields)


WRONG_MESSAGES = [
    (request(), "message empty"),
    (request(open=batch_pb.Open(run="run")), "message open"),
    (request(ack=batch_pb.Ack(step=-1)), "acknowledged step -1"),
    (request(ack=batch_pb.Ack(step=50)), "acknowledged step 50"),
    (request(credit=batch_pb.Credit(micro_batches=0)), "credits = 0"),
    (request(credit=batch_pb.Credit(micro_batches=-1)), "credits = -1"),
    (request(credit=batch_pb.Credit(micro_batches=2**31 - 1)), "1 to 1024"),
]


@pytest.mark.parametrize(("message", "words"), WRONG_MESSAGES, ids=[words for _, words in WRONG_MESSAGES])
def test_a_wrong_message_ends_the_stream_with_a_reason(shared: Job, message, words: str) -> None:
    stream = shared.stream(1, 0)
    stream.send(message)
    raised = stream.error()
    assert raised.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert words in raised.details()


def test_credits_that_pile_up_are_refused(shared: Job) -> None:
    stream = shared.stream(1, 0)
    for _ in range(5):
        stream.credit(1024)
    assert "exceed 4096" in stream.error().details()


@pytest.mark.parametrize("method", ["RunService/CreateRun", "CursorService/DescribeStep", "StoreService/GetStore"])
def test_bytes_that_are_no_message_are_refused(shared: Job, method: str) -> None:
    call = shared.channel.unary_unary(f"/dataserver.v1.{method}")
    with pytest.raises(grpc.RpcError) as raised:
        call(b"\xff\xff\xff\xff", timeout=PATIENCE_S)
    assert isinstance(error_of(raised.value), errors.InvalidRequestError)
    assert "4 bytes" in raised.value.details()


def test_bytes_that_are_no_message_end_a_stream(shared: Job) -> None:
    call = shared.channel.stream_stream("/dataserver.v1.BatchService/StreamMicroBatches")
    with pytest.raises(grpc.RpcError) as raised:
        next(call(iter([b"\xff\xff\xff\xff"]), timeout=PATIENCE_S))
    assert isinstance(error_of(raised.value), errors.InvalidRequestError)


def test_an_oversized_request_is_refused(shared: Job) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        create(shared, name="x" * 2**21)
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert shared.shown().name == "run"


def test_a_store_that_serves_nothing_is_refused_for_a_run(tmp_path) -> None:
    write_store(tmp_path / "cut", rows=[([1, 2, 3, 4], [0, 0, 0, 1])])
    with running_server({"cut": tmp_path / "cut"}) as server, job_on(server) as job:
        with pytest.raises(grpc.RpcError) as raised:
            create(job, spec=spec({"store": "cut", "max_length": 3}))
        assert isinstance(error_of(raised.value), errors.StoreRefusedError)
        assert "produced 0 usable examples" in raised.value.details()


@pytest.mark.parametrize("quadratic", [0, 5])
def test_a_run_without_a_model_s_cost_is_told_in_the_log(job: Job, caplog: pytest.LogCaptureFixture, quadratic) -> None:
    caplog.set_level(logging.INFO, "dataserver.services.run_service")
    job.create(cost_quadratic=quadratic)
    told = [record for record in caplog.records if "every token cost the same" in record.getMessage()]
    assert len(told) == (quadratic == 0)


def test_a_fault_of_the_server_s_own_is_told_with_an_incident_that_its_log_explains(
    serve, tmp_path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody scribbled into the ledger: a spec that no server wrote."""
    server: RunningServer = serve(ledger_url=f"sqlite:///{tmp_path}/ledger.db")
    with job_on(server) as job:
        job.create()
        database = sqlite3.connect(tmp_path / "ledger.db")
        database.execute("UPDATE ledger_runs SET spec = '{}'")
        database.commit()
        database.close()
        with pytest.raises(grpc.RpcError) as raised:
            job.shown()
        found = error_of(raised.value)
        assert isinstance(found, errors.InternalError)
        logged = [record for record in caplog.records if found.details["incident"] in record.getMessage()]
        assert any(record.exc_info for record in logged)
        with pytest.raises(grpc.RpcError) as again:
            describe_of("gone", job)
        assert isinstance(error_of(again.value), errors.RunNotFoundError)
