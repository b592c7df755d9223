"""Blocking work off the event loop: one small pool per kind, so that a slow kind starves no other."""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from dataserver.errors import UnavailableError, WaitExpiredError
from dataserver.streaming.metrics import Metrics

P = ParamSpec("P")
T = TypeVar("T")

# A ledger transaction waits for the disk or the network, not for the processor.
LEDGER_THREADS = 4
PLAN_THREADS = 2
STORE_THREADS = 2
INSPECT_THREADS = 2


class Threads:
    """Pools for plans, micro-batches, the ledger and stores."""

    def __init__(self, metrics: Metrics, *, ledger_wait_s: float, plan_wait_s: float) -> None:
        self._metrics = metrics
        self._ledger_wait_s = ledger_wait_s
        self._plan_wait_s = plan_wait_s
        self._pools = {
            kind: ThreadPoolExecutor(max_workers=count, thread_name_prefix=f"dataserver-{kind}")
            for kind, count in (
                ("ledger", LEDGER_THREADS),
                ("plan", PLAN_THREADS),
                ("encode", max(2, os.cpu_count() or 2)),
                ("store", STORE_THREADS),
                ("inspect", INSPECT_THREADS),
            )
        }

    async def ledger(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a ledger method. Raises `UnavailableError` when it takes too long; it may have happened all the same."""
        try:
            async with asyncio.timeout(self._ledger_wait_s):
                return await self._run("ledger", call, *args, **kwargs)
        except TimeoutError:
            raise UnavailableError(
                f"the ledger did not answer {_name(call)} within {self._ledger_wait_s:g} s; trying again is safe"
            ) from None

    async def plan(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run planning code."""
        return await self._limited("plan", call, *args, **kwargs)

    async def encode(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Gather and encode a micro-batch."""
        return await self._limited("encode", call, *args, **kwargs)

    async def store(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read the indexes of stores."""
        return await self._limited("store", call, *args, **kwargs)

    async def inspect(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Look something up for a person. It may take long, and no stream waits behind it."""
        return await self._limited("inspect", call, *args, **kwargs)

    def close(self) -> None:
        """Take no more work; what runs is left to end. Idempotent."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    async def _limited(self, kind: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            async with asyncio.timeout(self._plan_wait_s):
                return await self._run(kind, call, *args, **kwargs)
        except TimeoutError:
            raise WaitExpiredError(
                f"{kind} work ({_name(call)}) did not end within {self._plan_wait_s:g} s; is the storage reachable?"
            ) from None

    async def _run(self, kind: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._pools[kind], lambda: self._timed(kind, call, *args, **kwargs)
        )

    def _timed(self, kind: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        begun = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            self._metrics.work_seconds.labels(kind).observe(time.perf_counter() - begun)


def _name(call: Callable[..., object]) -> str:
    return str(getattr(call, "__name__", call))
