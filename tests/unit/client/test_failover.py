"""Which server is tried next, and for how long."""

import logging
import time
from types import SimpleNamespace

import pytest

from dataserver.client import failover as failover_module
from dataserver.client.failover import Failover
from dataserver.errors import StoreNotReadyError, UnavailableError

AWAY = UnavailableError("connection refused")


def test_ranks_spread_over_the_endpoints():
    endpoints = ("a:1", "b:1", "c:1")
    chosen = [Failover(endpoints, first=rank, patience_s=1, waiter="x").endpoint for rank in range(7)]
    assert chosen == ["a:1", "b:1", "c:1", "a:1", "b:1", "c:1", "a:1"]


def test_endpoints_are_tried_in_turn_and_the_waits_grow_per_round():
    failover = Failover(("a:1", "b:1"), first=1, patience_s=600, waiter="x")
    tried, waits = [], []
    for _ in range(20):
        tried.append(failover.endpoint)
        waits.append(failover.failed(AWAY))
    assert tried == ["b:1", "a:1"] * 10
    assert 0 < max(waits[:2]) <= 0.1
    assert all(2.5 <= wait <= 5.0 for wait in waits[-4:])


def test_waits_are_jittered():
    assert len({Failover(("a:1",), first=0, patience_s=9, waiter="x").failed(AWAY) for _ in range(20)}) > 15


def test_no_wait_reaches_beyond_the_patience():
    failover = Failover(("a:1",), first=0, patience_s=0.03, waiter="x")
    assert failover.failed(AWAY) <= 0.03


def test_without_patience_the_first_failure_is_raised_with_its_cause():
    failover = Failover(("a:1", "b:1"), first=0, patience_s=0, waiter="world rank 3")
    with pytest.raises(UnavailableError, match=r"world rank 3: no data server answered .*a:1, b:1.*connection refused"):
        failover.failed(AWAY)


def test_a_success_ends_the_outage_and_its_backoff():
    failover = Failover(("a:1",), first=0, patience_s=600, waiter="x")
    for _ in range(10):
        failover.failed(AWAY)
    failover.succeeded()
    assert failover.failed(AWAY) <= 0.1


def test_an_outage_is_logged_once_in_ten_seconds_and_its_end_too(caplog):
    caplog.set_level(logging.INFO, "dataserver.client")
    failover = Failover(("a:1",), first=0, patience_s=600, waiter="world rank 3")
    for _ in range(5):
        failover.failed(AWAY)
    failover.succeeded()
    first, last = [record.getMessage() for record in caplog.records]
    assert "world rank 3 waits for a data server since" in first
    assert "a:1 is away (connection refused)" in first
    assert "world rank 3: a:1 answers after" in last


def not_ready(done: int) -> StoreNotReadyError:
    return StoreNotReadyError(f"store 'chat' is being rendered: {done}%", store="chat", done=done)


def test_a_store_that_comes_nearer_takes_no_patience(caplog):
    failover = Failover(("a:1",), first=0, patience_s=0.0001, waiter="CreateRun")
    for done in range(200):
        failover.failed(not_ready(done))
    assert "CreateRun waits since" in caplog.text
    assert "a:1 says that store 'chat' is being rendered: 0%" in caplog.text


def test_a_store_that_comes_no_nearer_on_any_server_ends_the_wait(monkeypatch):
    seconds = iter((0.0, 1.0, 5.0, 10.9, 11.0))
    # Its own clock alone: threads that others left look at theirs.
    clock = SimpleNamespace(monotonic=lambda: next(seconds), strftime=time.strftime, localtime=time.localtime)
    monkeypatch.setattr(failover_module, "time", clock)
    failover = Failover(("a:1", "b:1"), first=0, patience_s=10, waiter="CreateRun")
    for done in (30, 40, 30, 40):
        failover.failed(not_ready(done))
    with pytest.raises(UnavailableError, match=r"CreateRun: nothing moved for 10\.0 s .*being rendered: 30%"):
        failover.failed(not_ready(30))
