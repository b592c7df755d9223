"""Blocking work off the event loop: one small pool per kind, so that a slow kind starves no other."""

import asyncio
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

# Encoding holds the interpreter's lock: two threads at it are slower than one. What it reads is in memory, because
# `fetches` loads it first, so no run's storage can hold up another run.
ENCODE_THREADS = 1

# A store's own, so that one whose storage hangs takes no thread from another. They wait for the network.
FETCH_THREADS = 32


class Threads:
    """Pools for plans, micro-batches, the ledger and stores."""

    def __init__(self, metrics: Metrics, *, ledger_wait_s: float, plan_wait_s: float) -> None:
        self._metrics = metrics
        self._ledger_wait_s = ledger_wait_s
        self._plan_wait_s = plan_wait_s
        self._pools = {
            kind: _pool(kind, count)
            for kind, count in (
                ("ledger", LEDGER_THREADS),
                ("plan", PLAN_THREADS),
                ("encode", ENCODE_THREADS),
                ("store", STORE_THREADS),
                ("inspect", INSPECT_THREADS),
            )
        }

    async def ledger(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a ledger method. Raises `UnavailableError` when it takes too long; it may have happened all the same."""
        try:
            async with asyncio.timeout(self._ledger_wait_s):
                return await self._run("ledger", "ledger", call, *args, **kwargs)
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

    async def fetch(self, store: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Load blocks of `store`, or do what has to wait for them."""
        name = f"fetch {store}"
        if name not in self._pools:
            self._pools[name] = _pool("fetch", FETCH_THREADS)
        return await self._limited_in(name, "fetch", call, *args, **kwargs)

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
        return await self._limited_in(kind, kind, call, *args, **kwargs)

    async def _limited_in(self, pool: str, kind: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            async with asyncio.timeout(self._plan_wait_s):
                return await self._run(pool, kind, call, *args, **kwargs)
        except TimeoutError:
            raise WaitExpiredError(
                f"{kind} work ({_name(call)}) did not end within {self._plan_wait_s:g} s; is the storage reachable?"
            ) from None

    async def _run(self, pool: str, kind: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._pools[pool], lambda: self._timed(kind, call, *args, **kwargs)
        )

    def _timed(self, kind: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        begun = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            self._metrics.work_seconds.labels(kind).observe(time.perf_counter() - begun)


def _pool(kind: str, count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=count, thread_name_prefix=f"dataserver-{kind}")


def _name(call: Callable[..., object]) -> str:
    return str(getattr(call, "__name__", call))
