"""The client raises the class that the server raised, with its message and details."""

import time
from threading import Event

import pytest

from dataserver.client import DataClient
from dataserver.client import calls as client_calls
from dataserver.errors import REASONS, InternalError, InvalidRequestError, UnavailableError, WaitExpiredError
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import attempt_info
from dataserver.v1 import cursor_service_pb2 as cursors_pb2
from dataserver.v1 import run_pb2
from dataserver.v1 import run_service_pb2 as pb
from dataserver.wire.messages import run_spec_to_proto

GET_RUN = "RunService/GetRun"
SPEC = RunSpec(
    order=OrderSpec(sources=(Source(store="s"),), max_length=8), batch=BatchSpec(step_samples=1, micro_batch_tokens=8)
)
FINAL = [reason.error for reason in REASONS if not issubclass(reason.error, UnavailableError)]


def raising(error):
    def answer(_):
        raise error

    return {GET_RUN: (pb.GetRunRequest, answer)}


@pytest.mark.parametrize("error", FINAL, ids=lambda error: error.__name__)
def test_a_call_raises_the_class_that_the_server_raised(unary, error):
    server = unary(raising(error("row 7 of store chat: très wrong", row=7, store="chat")))
    with (
        DataClient(server.endpoint) as client,
        pytest.raises(error, match="row 7 of store chat: très") as caught,
    ):
        client.get_run("r")
    assert type(caught.value) is error
    assert caught.value.details == {"row": "7", "store": "chat"}
    assert server.called == [GET_RUN], "only UNAVAILABLE is tried again"


@pytest.mark.parametrize("error", FINAL, ids=lambda error: error.__name__)
def test_a_stream_raises_the_class_that_the_server_raised(scripted, error):
    def refuse(_):
        yield from ()
        raise error("attempt 4 is over", attempt=4)

    server, client = scripted(refuse)
    with pytest.raises(error, match="attempt 4 is over") as caught:
        next(client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1))
    assert type(caught.value) is error
    assert caught.value.details == {"attempt": "4"}
    assert len(server.connections) == 1


def test_an_unavailable_server_is_tried_again_until_it_answers(unary):
    answers = [UnavailableError("draining"), UnavailableError("draining"), InvalidRequestError("at last")]

    def answer(_):
        raise answers.pop(0)

    server = unary({GET_RUN: (pb.GetRunRequest, answer)})
    with DataClient(server.endpoint) as client, pytest.raises(InvalidRequestError, match="at last"):
        client.get_run("r")
    assert len(server.called) == 3


def test_an_unavailable_server_is_given_up_after_the_patience(unary):
    server = unary(raising(UnavailableError("draining for maintenance")))
    begin = time.monotonic()
    with DataClient(server.endpoint, patience_s=0.4) as client, pytest.raises(UnavailableError) as caught:
        client.get_run("r")
    assert time.monotonic() - begin >= 0.4
    assert server.endpoint in caught.value.message
    assert "draining for maintenance" in caught.value.message
    assert set(server.called) == {GET_RUN}


def test_a_server_that_does_not_answer_is_named(unary, monkeypatch):
    monkeypatch.setattr(client_calls, "CALL_DEADLINE_S", 0.3)
    server = unary({GET_RUN: (pb.GetRunRequest, lambda _: time.sleep(1.0) or pb.GetRunResponse())})
    with DataClient(server.endpoint) as client, pytest.raises(WaitExpiredError, match=f"{GET_RUN}: {server.endpoint}"):
        client.get_run("r")


def test_a_new_order_may_take_longer_than_other_answers(unary, monkeypatch):
    asked = Event()
    monkeypatch.setattr(client_calls, "CALL_DEADLINE_S", 0.2)

    def answer(_):
        # Nobody sets it: the answer comes when the others' deadline is over.
        asked.wait(0.6)
        raise InvalidRequestError("after long work")

    server = unary({"RunService/AmendRun": (pb.AmendRunRequest, answer)})
    with DataClient(server.endpoint) as client, pytest.raises(InvalidRequestError, match="after long work"):
        client.amend_run("r", 5, SPEC.order)
    assert server.called == ["RunService/AmendRun"]


def test_a_server_without_the_method_is_an_invalid_request(unary):
    server = unary(raising(InternalError("unused")))
    with DataClient(server.endpoint) as client, pytest.raises(InvalidRequestError, match="UNIMPLEMENTED"):
        client.list_runs()


def test_a_port_where_nobody_listens_is_named():
    with DataClient("127.0.0.1:1", patience_s=0) as client, pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
        client.list_runs()


UNREPEATED = {
    "RunService/DeleteRun": (pb.DeleteRunRequest, lambda client: client.delete_run("r"), "may be deleted"),
    "CursorService/RewindRun": (
        cursors_pb2.RewindRunRequest,
        lambda client: client.rewind_run("r", 3),
        "may be rewound to version 3",
    ),
}


@pytest.mark.parametrize("rpc", UNREPEATED)
def test_a_call_that_must_not_be_repeated_is_sent_once_after_a_server_was_found(unary, rpc):
    request, call, told = UNREPEATED[rpc]
    shown = pb.GetRunResponse(run=run_pb2.Run(name="r", spec=run_spec_to_proto(SPEC)))
    looks = [UnavailableError("draining"), UnavailableError("draining")]

    def look(_):
        if looks:
            raise looks.pop(0)
        return shown

    def lose(_):
        raise UnavailableError("the connection broke before the answer was read")

    server = unary({GET_RUN: (pb.GetRunRequest, look), rpc: (request, lose)})
    with DataClient(server.endpoint) as client:
        with pytest.raises(UnavailableError, match=rf"{told}: `dataserver run show r` tells") as caught:
            call(client)
        assert "the connection broke" in caught.value.message
    assert server.called == [GET_RUN, GET_RUN, GET_RUN, rpc]
