"""The guard around calls: what is under way is known, so that a drain can wait for it."""

import asyncio
import logging

import grpc
import pytest
from prometheus_client import CollectorRegistry

from dataserver.errors import RunNotFoundError
from dataserver.hosting.guard import Guard
from dataserver.streaming.metrics import Metrics


class Details:
    """What gRPC says of a call before it begins."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


async def guarded(guard: Guard, handler, method: str = "/dataserver.v1.RunService/GetRun"):
    async def continuation(_details):
        return grpc.unary_unary_rpc_method_handler(handler, request_deserializer=bytes, response_serializer=bytes)

    return await guard.intercept_service(continuation, Details(method))


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


async def test_a_drain_waits_for_calls_under_way_and_for_nothing_else(metrics: Metrics) -> None:
    guard = Guard(metrics.requests, "dataserver.v1")
    go = asyncio.Event()

    async def handler(request, _call):
        await go.wait()
        return request

    assert await guard.wait_idle(0)
    method = await guarded(guard, handler)
    calls = [asyncio.ensure_future(method.unary_unary(b"x", None)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not await guard.wait_idle(0.01)
    go.set()
    assert await guard.wait_idle(5.0)
    assert await asyncio.gather(*calls) == [b"x"] * 3
    counted = {"method": "RunService/GetRun", "status": "OK"}
    assert metrics.registry.get_sample_value("dataserver_requests_total", counted) == 3


async def test_a_call_that_is_cancelled_is_no_longer_under_way(metrics: Metrics) -> None:
    guard = Guard(metrics.requests, "dataserver.v1")

    async def handler(_request, _call):
        await asyncio.Event().wait()

    method = await guarded(guard, handler)
    call = asyncio.ensure_future(method.unary_unary(b"x", None))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert await guard.wait_idle(0)


async def test_services_that_are_not_ours_are_left_alone(metrics: Metrics) -> None:
    async def handler(request, _call):
        return request

    method = await guarded(Guard(metrics.requests, "dataserver.v1"), handler, "/grpc.health.v1.Health/Check")
    assert method.unary_unary is handler


async def test_a_handler_that_is_no_coroutine_function_is_a_fault_of_ours(metrics: Metrics) -> None:
    with pytest.raises(TypeError, match="RunService/GetRun"):
        await guarded(Guard(metrics.requests, "dataserver.v1"), lambda request, _call: request)


@pytest.mark.parametrize("refused", [True, False], ids=["while it is told a status", "in the middle of a message"])
async def test_a_client_that_goes_away_is_no_fault_of_the_server(metrics: Metrics, caplog, *, refused: bool) -> None:
    # As gRPC's own is called, which only an extension module knows.
    gone = type("ExecuteBatchError", (Exception,), {})("Failed")

    async def handler(_request, _call):
        raise RunNotFoundError("there is no run") if refused else gone

    class GoneClient:
        def done(self) -> bool:
            return False

        async def abort(self, *_arguments: object) -> None:
            raise gone

    method = await guarded(Guard(metrics.requests, "dataserver.v1"), handler)
    with pytest.raises(asyncio.CancelledError):
        await method.unary_unary(b"x", GoneClient())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    counted = {"method": "RunService/GetRun", "status": "NOT_FOUND" if refused else "CANCELLED"}
    assert metrics.registry.get_sample_value("dataserver_requests_total", counted) == 1


async def test_a_refusal_that_is_repeated_in_the_same_words_is_logged_once(metrics: Metrics, caplog) -> None:
    async def handler(request, _call):
        raise RunNotFoundError(f"there is no run {request!r}")

    class Refusing:
        async def abort(self, *_arguments: object) -> None:
            return

    method = await guarded(Guard(metrics.requests, "dataserver.v1"), handler)
    with caplog.at_level(logging.INFO):
        for run in (b"chat", b"chat", b"chat", b"other", b"chat"):
            await method.unary_unary(run, Refusing())
    told = [record.getMessage() for record in caplog.records]
    assert [line.rpartition(" ")[2] for line in told] == ["b'chat'", "b'other'"]
    counted = {"method": "RunService/GetRun", "status": "NOT_FOUND"}
    assert metrics.registry.get_sample_value("dataserver_requests_total", counted) == 5
