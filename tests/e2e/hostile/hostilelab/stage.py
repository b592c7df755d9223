"""A run for hostile clients to work on."""

from dataclasses import dataclass
from itertools import count

from dataserver.v1 import run_pb2, run_service_pb2
from hostilelab.methods import begin, run_spec
from hostilelab.wire import OK, Wire

RUNS = "/dataserver.v1.RunService/"

_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A fresh run and its attempt."""

    run: str
    fingerprint: str
    attempt: run_pb2.Attempt


def set_stage(wire: Wire, world_size: int = 1) -> Stage:
    """Create a run and begin an attempt of `world_size` ranks."""
    run = create(wire, f"stage-{next(_numbers)}")
    attempt = begin_attempt(wire, begin(run.name, world_size=world_size, dp_world_size=world_size))
    return Stage(run=run.name, fingerprint=run.order_fingerprint, attempt=attempt)


def create(wire: Wire, name: str) -> run_pb2.Run:
    request = run_service_pb2.CreateRunRequest(name=name, spec=run_spec())
    status, answer = wire.unary(RUNS + "CreateRun", request.SerializeToString())
    assert status == OK
    return run_service_pb2.CreateRunResponse.FromString(answer).run


def begin_attempt(wire: Wire, request: run_service_pb2.BeginAttemptRequest) -> run_pb2.Attempt:
    status, answer = wire.unary(RUNS + "BeginAttempt", request.SerializeToString())
    assert status == OK
    return run_service_pb2.BeginAttemptResponse.FromString(answer).attempt
