"""Wrong requests about syncs are refused by name, and change nothing."""

import pytest
from google.protobuf.duration_pb2 import Duration
from hostilelab.methods import MINUTE, open_of, report
from hostilelab.stage import set_stage
from hostilelab.wire import OK, Wire

from dataserver.v1 import policy_version_pb2
from dataserver.v1 import weight_sync_service_pb2 as pb

INVALID = ("INVALID_ARGUMENT", "INVALID_REQUEST")
SYNCS = "/dataserver.v1.WeightSyncService/"


def call(wire: Wire, method: str, request):
    path, data = f"{SYNCS}{method}", request.SerializeToString()
    return wire.server_stream(path, data) if method.startswith("Watch") else wire.unary(path, data)[0]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "wanted"),
        ({"last": False}, "wanted"),
        ({"version": -1}, "version = -1"),
        ({"version": -(2**63)}, "version"),
        ({"last": True, "at_or_after": True}, "at_or_after"),
        ({"version": 1, "run": "no name?"}, "no name?"),
    ],
)
def test_a_request_for_no_version_is_refused_by_name(wire: Wire, fields, named):
    stage = set_stage(wire)
    status = call(wire, "RequestWeightSync", pb.RequestWeightSyncRequest(**{"run": stage.run} | fields))
    assert status.verdict == INVALID
    assert named in status.words


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hold_id": ""}, "hold_id"),
        ({"hold_id": "x" * 257}, "hold_id"),
        ({"hold_id": "a\0b"}, "NUL"),
        ({"ttl": None}, "ttl"),
        ({"ttl": Duration(seconds=-1)}, "ttl"),
        ({"ttl": Duration(seconds=3601)}, "ttl"),
        ({"ttl": Duration(seconds=2**62, nanos=-(2**31))}, "ttl"),
    ],
)
def test_a_hold_that_no_eval_would_take_is_refused_by_name(wire: Wire, fields, named):
    stage = set_stage(wire)
    request = pb.HoldWeightSyncRequest(**{"run": stage.run, "hold_id": "eval", "ttl": MINUTE} | fields)
    status = call(wire, "HoldWeightSync", request)
    assert status.verdict == INVALID
    assert named in status.words


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"sync_id": ""}, "sync_id"),
        ({"sync_id": "G" * 32}, "sync_id"),
        ({"outcome": 0}, "outcome"),
        ({"outcome": 77}, "outcome"),
        ({"version": None}, "version.attempt"),
        ({"seconds": float("nan")}, "seconds"),
        ({"seconds": -1.0}, "seconds"),
        ({"stall_seconds": float("inf")}, "stall_seconds"),
        ({"engines": [""]}, "engine"),
        ({"engines": ["e"] * 1025}, "1025"),
        ({"detail": "x" * 5000}, "detail"),
    ],
)
def test_a_report_of_no_sync_is_refused_by_name(wire: Wire, fields, named):
    stage = set_stage(wire)
    status = call(wire, "ReportWeightSync", report(stage.run, stage.attempt.number, **fields))
    assert status.verdict == INVALID
    assert named in status.words


def test_a_report_of_a_version_that_is_not_there_is_refused(wire: Wire):
    stage = set_stage(wire)
    number = stage.attempt.number
    unsealed = policy_version_pb2.PolicyVersion(attempt=number, number=99)
    assert call(wire, "ReportWeightSync", report(stage.run, number, version=unsealed)).verdict == INVALID
    assert call(wire, "ReportWeightSync", report(stage.run, number + 7)).verdict == INVALID
    assert call(wire, "ReportWeightSync", report(stage.run, number)) == OK
    assert call(wire, "ReportWeightSync", pb.ReportWeightSyncRequest(run=stage.run)).verdict == INVALID


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"holder": ""}, "holder"),
        ({"address": ""}, "address"),
        ({"address": "nowhere"}, "HOST:PORT"),
        ({"address": "host:0"}, "not 0"),
        ({"address": "host:70000"}, "70000"),
        ({"ttl": Duration()}, "ttl"),
    ],
)
def test_an_orchestrator_that_nobody_could_call_is_refused_by_name(wire: Wire, fields, named):
    stage = set_stage(wire)
    request = pb.LeaseOrchestratorRequest(
        **{"run": stage.run, "holder": "one", "address": "host:7", "ttl": MINUTE} | fields
    )
    status = call(wire, "LeaseOrchestrator", request)
    assert status.verdict == INVALID
    assert named in status.words


def test_a_second_orchestrator_is_refused_while_the_first_one_lives(wire: Wire):
    stage = set_stage(wire)
    lease = {"run": stage.run, "address": "host:7", "ttl": MINUTE}
    assert call(wire, "LeaseOrchestrator", pb.LeaseOrchestratorRequest(holder="one", **lease)) == OK
    status = call(wire, "LeaseOrchestrator", pb.LeaseOrchestratorRequest(holder="two", **lease))
    assert status.verdict == ("FAILED_PRECONDITION", "ORCHESTRATOR_ALIVE")
    assert call(wire, "ReleaseOrchestrator", pb.ReleaseOrchestratorRequest(run=stage.run, holder="one")) == OK
    assert call(wire, "LeaseOrchestrator", pb.LeaseOrchestratorRequest(holder="two", **lease)) == OK


@pytest.mark.parametrize("method", ["RequestWeightSync", "GetWeightSyncState", "WatchWeightSyncState"])
def test_a_run_that_is_not_there_is_not_found(wire: Wire, method):
    requests = {"RequestWeightSync": pb.RequestWeightSyncRequest(run="nobody", last=True)}
    request = requests.get(method) or getattr(pb, f"{method}Request")(run="nobody")
    assert call(wire, method, request).verdict == ("NOT_FOUND", "RUN_NOT_FOUND")


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"acked_offer": -1}, INVALID),
        ({"acked_offer": 1, "takes_offers": True}, ("FAILED_PRECONDITION", "ATTEMPT_MISMATCH")),
    ],
)
def test_an_open_behind_an_offer_that_was_never_made_is_refused(wire: Wire, fields, verdict):
    stage = set_stage(wire)
    status, _ = wire.conversation([open_of(stage.run, stage.attempt, **fields).SerializeToString()], half_close=False)
    assert status.verdict == verdict
