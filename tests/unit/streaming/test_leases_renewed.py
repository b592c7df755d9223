"""Leases are renewed for as long as streams are held, whatever the ledger says meanwhile."""

import asyncio
import logging

import pytest
from prometheus_client import CollectorRegistry

from dataserver.errors import UnavailableError
from dataserver.streaming.leases import Leases
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.threads import Threads


class LockedLedger:
    """Refuses a renewal, and takes the next one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._refused = False
        self.renewed = asyncio.Event()

    def renew_leases(self, _stream_ids: tuple[str, ...]) -> None:
        if self._refused:
            self._loop.call_soon_threadsafe(self.renewed.set)
            return
        self._refused = True
        raise UnavailableError("ledger l.db: another process has locked it for too long")


async def test_a_ledger_that_is_locked_for_a_while_is_a_warning_without_a_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    ledger = LockedLedger()
    threads = Threads(Metrics(CollectorRegistry()), ledger_wait_s=60.0, plan_wait_s=60.0)
    leases = Leases(lambda: ["a", "b"], ledger=ledger, threads=threads, lease_s=0.03)
    leases.start()
    await ledger.renewed.wait()
    await leases.stop()
    threads.close()
    (told,) = [record for record in caplog.records if "renewing" in record.message]
    assert told.message == (
        "renewing the leases of 2 streams is tried again: ledger l.db: another process has locked it for too long"
    )
    assert (told.levelno, told.exc_info) == (logging.WARNING, None)
