"""How a server ends: nobody loses a lease, everybody is told."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from serverlab import PATIENCE_S, Job, eventually, job_on

from dataserver.errors import AttemptAliveError
from dataserver.testing import RunningServer
from dataserver.v1 import run_service_pb2


def test_a_draining_server_ends_its_streams_so_that_ranks_go_elsewhere(server: RunningServer, job: Job) -> None:
    job.create()
    attempt = job.begin()
    stream = job.stream(attempt)
    stream.take_step()
    server.restart()
    assert stream.error().code() == grpc.StatusCode.UNAVAILABLE
    again = job.stream(attempt, next_step=2, server=server)
    assert again.take_step()[0].step == 2


def test_a_drain_does_not_free_the_attempt(server: RunningServer, job: Job) -> None:
    job.create()
    stream = job.stream(job.begin())
    stream.take_step()
    server.restart()
    stream.error()
    assert isinstance(job.begin_error(holder="another"), AttemptAliveError)


def test_an_attempt_whose_server_is_gone_is_free_when_its_lease_lapses(serve) -> None:
    server = serve(lease_s=1.0)
    with job_on(server) as job:
        job.create()
        stream = job.stream(job.begin())
        stream.take_step()
        server.restart()
        stream.error()
        eventually(lambda: job.begin_error(holder="another") is None)


def test_leases_are_renewed_while_a_rank_is_silent(serve) -> None:
    with job_on(serve(lease_s=1.0)) as job:
        job.create()
        stream = job.stream(job.begin())
        stream.take_step()
        first = job.shown().attempt.lease_expire_time.ToMilliseconds()
        eventually(lambda: job.shown().attempt.lease_expire_time.ToMilliseconds() > first + 1000)


def test_whoever_watches_health_sees_a_drain(server: RunningServer, job: Job) -> None:
    health = health_pb2_grpc.HealthStub(job.channel)
    watches = [
        health.Watch(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_S)
        for service in ("", "dataserver.v1.BatchService")
    ]
    for watch in watches:
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    server.begin_drain()
    for watch in watches:
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    server.stop()


def test_a_watched_run_ends_with_the_server(server: RunningServer, job: Job) -> None:
    job.create()
    watch = job.runs.WatchRun(run_service_pb2.WatchRunRequest(run="run"), timeout=PATIENCE_S)
    next(watch)
    server.stop()
    with pytest.raises(grpc.RpcError) as raised:
        next(watch)
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE


def test_stopping_twice_is_no_error(server: RunningServer) -> None:
    server.stop()
    server.stop()
