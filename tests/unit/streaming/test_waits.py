"""Waits: a limit, a line that says for whom, a metric."""

import asyncio
import logging

import pytest
from prometheus_client import CollectorRegistry

from dataserver.errors import WaitExpiredError
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.waits import Waits


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def wait(waits: Waits, ready: asyncio.Future, limit_s: float = 10.0, who: str = "rank 3"):
    return waits.until(ready, who="run 'run'", cause="pacing", limit_s=limit_s, describe=lambda: who)


async def test_a_wait_that_ends_leaves_only_its_seconds(metrics: Metrics) -> None:
    ready = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait(Waits(metrics), ready))
    await asyncio.sleep(0)
    assert metrics.registry.get_sample_value("dataserver_waiting_streams", {"cause": "pacing"}) == 1
    ready.set_result(None)
    await waiting
    assert metrics.registry.get_sample_value("dataserver_waiting_streams", {"cause": "pacing"}) == 0
    assert metrics.registry.get_sample_value("dataserver_wait_seconds_total", {"cause": "pacing"}) > 0


async def test_what_is_ready_is_not_waited_for(metrics: Metrics) -> None:
    ready = asyncio.get_running_loop().create_future()
    ready.set_result(None)
    await wait(Waits(metrics), ready)
    assert metrics.registry.get_sample_value("dataserver_wait_seconds_total", {"cause": "pacing"}) is None


async def test_a_wait_beyond_its_limit_says_for_whom(metrics: Metrics) -> None:
    ready = asyncio.get_running_loop().create_future()
    with pytest.raises(WaitExpiredError, match=r"'run': waited 0\.01 s for rank 3"):
        await wait(Waits(metrics), ready, limit_s=0.01)
    assert not ready.cancelled()


async def test_ranks_that_wait_for_the_same_say_so_once(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    waits = Waits(metrics, log_every_s=0.05)
    ready = asyncio.get_running_loop().create_future()
    waiting = [asyncio.ensure_future(wait(waits, ready, limit_s=0.08)) for _ in range(50)]
    with caplog.at_level(logging.WARNING):
        await asyncio.gather(*waiting, return_exceptions=True)
    lines = [record.getMessage() for record in caplog.records]
    assert 1 <= len(lines) < 10
    assert "waiting for rank 3 since" in lines[0]


async def test_what_is_waited_for_is_described_as_it_stands_at_the_end(metrics: Metrics) -> None:
    ready = asyncio.get_running_loop().create_future()
    laggards = [1, 2]
    waits = Waits(metrics, log_every_s=0.01)
    waiting = asyncio.ensure_future(
        waits.until(ready, who="run 'run'", cause="pacing", limit_s=0.05, describe=lambda: f"ranks {laggards}")
    )
    await asyncio.sleep(0)
    laggards.remove(1)
    with pytest.raises(WaitExpiredError, match=r"ranks \[2\]"):
        await waiting
