"""The right to be the run's orchestrator.

    take ──granted──> keep ──not renewed in time, or another has it──> over: no engine call outlives it ──> take

The lease counts from the moment in which it was asked for, so it ends here before it ends in the ledger: whoever takes
over waits the old lease out there, and finds nobody at work.
"""

import asyncio
import logging

from dataserver.errors import DataServerError, PreconditionError
from orchestrator.data_server import PASSING, RETRY_S, DataServer

log = logging.getLogger(__name__)

# A renewal may be late by two of three before the lease ends.
RENEWALS = 3


class Lease:
    """One holder's lease. `holder`: a name that no other process shares. `address`: where trainers reach it."""

    def __init__(self, server: DataServer, *, run: str, holder: str, address: str, ttl_s: float) -> None:
        self.holder = holder
        self._server = server
        self._run = run
        self._address = address
        self._ttl_s = ttl_s
        self._until = 0.0
        self._epoch = 0

    async def take(self) -> int:
        """Wait until it is granted; returns the epoch. Raises what no waiting mends: a refused token, say."""
        told = ""
        while True:
            try:
                await self._ask()
            except (*PASSING, PreconditionError) as error:
                if error.message != told:
                    told = error.message
                    log.warning("not the orchestrator of run %s yet: %s", self._run, told)
            else:
                log.info("orchestrator of run %s, epoch %d", self._run, self._epoch)
                return self._epoch
            await asyncio.sleep(min(RETRY_S, self._ttl_s / RENEWALS))

    async def keep(self) -> str:
        """Renew until the lease is over; returns why it is."""
        loop = asyncio.get_running_loop()
        epoch = self._epoch
        pause_s = self._ttl_s / RENEWALS
        while True:
            await asyncio.sleep(min(pause_s, self._until - loop.time()))
            asking = asyncio.ensure_future(self._ask())
            asking.add_done_callback(_heard)
            await asyncio.wait([asking], timeout=self._until - loop.time())
            error = asking.exception() if asking.done() else None
            if error is None and asking.done():
                pause_s = self._ttl_s / RENEWALS
                if self._epoch != epoch:
                    return f"epoch {self._epoch} began"
            elif error is not None and not isinstance(error, PASSING):
                return str(error)
            else:
                pause_s = min(RETRY_S, self._ttl_s / RENEWALS / 2)
            if loop.time() >= self._until:
                return f"it was not renewed within {self._ttl_s:g} s: {error or 'the data server does not answer'}"

    async def release(self) -> None:
        """Give it back, if the data server is there to take it."""
        try:
            await self._server.call(self._server.calls.release_orchestrator, self._run, self.holder)
        except DataServerError as error:
            log.info("the lease ends by itself: %s", error)

    async def _ask(self) -> None:
        asked = asyncio.get_running_loop().time()
        calls = self._server.calls
        lease = await self._server.call(calls.lease_orchestrator, self._run, self.holder, self._address, self._ttl_s)
        self._until = max(self._until, asked + self._ttl_s)
        self._epoch = max(self._epoch, lease.orchestrator.epoch)


def _heard(asking: "asyncio.Future[None]") -> None:
    """What a renewal that came too late raised is no longer of interest."""
    if not asking.cancelled():
        asking.exception()
