"""Beginning an attempt when answers get lost and predecessors live on."""

import threading

import pytest

from dataserver.client import DataClient
from dataserver.client import calls as client_calls
from dataserver.cursor import Cursor
from dataserver.errors import AttemptAliveError, HolderFencedError, InvalidRequestError, UnavailableError
from dataserver.v1 import cursor_pb2, run_pb2, run_service_pb2, run_spec_pb2

BATCH = run_spec_pb2.BatchSpec(
    step_samples=4,
    micro_batch_tokens=64,
    policy=run_spec_pb2.PACKING_POLICY_BALANCED,
    alignment=1,
    lookahead_steps=1,
    cost_linear=1,
)
BASE = cursor_pb2.Cursor(order_fingerprint="f")


class Ledger:
    """Just enough of a run: its current attempt, and what to raise before and after beginning the next."""

    def __init__(self, *, number: int = 0, holder: str = "") -> None:
        self.attempt = run_pb2.Attempt(number=number, holder=holder, batch=BATCH, base=BASE)
        self.refusals: list[Exception] = []
        self.lost_answers = 0
        self.requests: list[run_service_pb2.BeginAttemptRequest] = []

    def get_run(self, request: run_service_pb2.GetRunRequest) -> run_service_pb2.GetRunResponse:
        return run_service_pb2.GetRunResponse(run=run_pb2.Run(name=request.run, attempt=self.attempt))

    def begin(self, request: run_service_pb2.BeginAttemptRequest) -> run_service_pb2.BeginAttemptResponse:
        self.requests.append(request)
        if self.refusals:
            raise self.refusals.pop(0)
        self.attempt = run_pb2.Attempt(
            number=self.attempt.number + 1,
            attempt_id=f"{len(self.requests):032x}",
            holder=request.holder,
            batch=BATCH,
            base=BASE,
            version=request.version,
        )
        if self.lost_answers:
            self.lost_answers -= 1
            raise UnavailableError("the connection broke before the answer was read")
        return run_service_pb2.BeginAttemptResponse(attempt=self.attempt)


@pytest.fixture
def begin(unary):
    """Start a server over a ledger and begin an attempt through it."""
    clients = []

    def call(ledger, **arguments):
        server = unary(
            {
                "RunService/GetRun": (run_service_pb2.GetRunRequest, ledger.get_run),
                "RunService/BeginAttempt": (run_service_pb2.BeginAttemptRequest, ledger.begin),
            }
        )
        client = DataClient(server.endpoint, patience_s=60)
        clients.append(client)
        defaults = {"resume": False, "world_size": 2, "dp_world_size": 2, "holder": "me"}
        return client.begin_attempt("r", **defaults | arguments)

    yield call
    for client in clients:
        client.close()


def test_a_lost_answer_is_looked_up_and_not_asked_for_again(begin):
    ledger = Ledger(number=3, holder="me")
    ledger.lost_answers = 1
    assert begin(ledger).number == 4
    assert len(ledger.requests) == 1


def test_an_earlier_attempt_of_the_same_holder_is_not_taken_for_the_lost_answer(begin):
    ledger = Ledger(number=3, holder="me")
    ledger.refusals = [UnavailableError("connection refused")]
    assert begin(ledger).number == 4
    assert len(ledger.requests) == 2


def test_an_attempt_of_another_is_not_taken_for_the_lost_answer(begin):
    class Displaced(Ledger):
        def begin(self, request):
            self.requests.append(request)
            self.attempt = run_pb2.Attempt(number=9, holder="other", batch=BATCH, base=BASE)
            raise UnavailableError("away") if len(self.requests) == 1 else AttemptAliveError("attempt 9 is alive")

    ledger = Displaced()
    with pytest.raises(AttemptAliveError, match="attempt 9"):
        begin(ledger)
    assert len(ledger.requests) == 2


def test_a_late_answer_is_looked_up(begin, monkeypatch):
    class Slow(Ledger):
        def begin(self, request):
            answer = super().begin(request)
            looked_up.wait(60)
            return answer

        def get_run(self, request):
            if self.requests:
                looked_up.set()
            return super().get_run(request)

    monkeypatch.setattr(client_calls, "CALL_DEADLINE_S", 1.5)
    looked_up = threading.Event()
    ledger = Slow()
    assert begin(ledger).number == 1
    assert looked_up.is_set()
    assert len(ledger.requests) == 1


def test_a_live_predecessor_is_refused_at_once_unless_waited_for(begin):
    ledger = Ledger()
    ledger.refusals = [AttemptAliveError("attempt 1 is alive")]
    with pytest.raises(AttemptAliveError):
        begin(ledger)
    assert len(ledger.requests) == 1


def test_a_live_predecessor_is_waited_for(begin, caplog):
    ledger = Ledger()
    ledger.refusals = [AttemptAliveError("attempt 1 is alive, held by other")]
    assert begin(ledger, wait_alive_s=30).number == 1
    assert len(ledger.requests) == 2
    assert any("attempt 1 is alive, held by other" in record.getMessage() for record in caplog.records)


def test_the_wait_for_a_predecessor_is_bounded(begin):
    ledger = Ledger()
    ledger.refusals = [AttemptAliveError("attempt 1 is alive")] * 100
    with pytest.raises(AttemptAliveError):
        begin(ledger, wait_alive_s=0.3)
    assert 1 <= len(ledger.requests) <= 3


def test_a_fenced_holder_hears_so_at_once(begin):
    ledger = Ledger()
    ledger.refusals = [HolderFencedError("displaced")]
    with pytest.raises(HolderFencedError):
        begin(ledger, wait_alive_s=30)


def test_a_resume_says_its_version(begin):
    ledger = Ledger()
    begin(ledger, resume=True, cursor=Cursor(order_fingerprint="f", step=12, position=40))
    begin(ledger, resume=True, version=5)
    assert [request.version for request in ledger.requests] == [12, 5]
    assert [request.HasField("cursor") for request in ledger.requests] == [True, False]
    assert {request.mode for request in ledger.requests} == {run_service_pb2.BEGIN_MODE_RESUME}


def test_a_resume_from_nowhere_is_refused(begin):
    with pytest.raises(InvalidRequestError, match="cursor, or a version"):
        begin(Ledger(), resume=True)


def test_a_version_that_contradicts_the_cursor_is_refused(begin):
    with pytest.raises(InvalidRequestError, match=r"version 3 .* step 12"):
        begin(Ledger(), resume=True, version=3, cursor=Cursor(order_fingerprint="f", step=12))
