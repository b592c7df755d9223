"""The right to be the run's orchestrator.

    take ──granted──> keep ──not renewed in time, or another has it──> over: no engine call outlives it ──> take

The lease counts from the moment in which it was asked for, and a twentieth less, so it ends here before it ends in the
ledger: whoever takes over waits the old lease out there, and finds nobody at work, and no call on its way. A process
that stood still may wake with the lease over and a call to make: so calls ask `alive`, too.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from dataserver.errors import DataServerError, PreconditionError
from orchestrator.data_server import PASSING, RETRY_S, DataServer
from orchestrator.waiting import Waiting

log = logging.getLogger(__name__)

# A renewal may be late by two of three before the lease ends.
RENEWALS = 3
# So much of it is over before it ends in the ledger: what was called just before has arrived by then.
MARGIN = 0.05


class Lease:
    """One holder's lease. `holder`: a name that no other process shares. `address`: where trainers reach it.

    `clock`: seconds, of the loop's pace. Not the loop's own: that one shows when the loop's turn began, which a process
    that stood still since did not notice.
    """

    def __init__(
        self,
        server: DataServer,
        *,
        run: str,
        holder: str,
        address: str,
        ttl_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.holder = holder
        self._server = server
        self._run = run
        self._address = address
        self._ttl_s = ttl_s
        self._clock = clock
        self._until = 0.0
        self._epoch = 0

    @property
    def alive(self) -> bool:
        """Whether engines may be called, at this very moment."""
        return self._clock() < self._until

    async def take(self) -> int:
        """Wait until it is granted; returns the epoch. Raises what no waiting mends: a refused token, say."""
        waiting = Waiting(f"the lease of run {self._run}", log, self._clock)
        while True:
            try:
                await self._ask()
            except (*PASSING, PreconditionError) as error:
                # How long another's lease lives is another text each time.
                waiting.say(error.message.partition(", for at least")[0])
            else:
                log.info("orchestrator of run %s, epoch %d", self._run, self._epoch)
                return self._epoch
            await asyncio.sleep(min(RETRY_S, self._ttl_s / RENEWALS))

    async def keep(self) -> str:
        """Renew until the lease is over; returns why it is."""
        epoch = self._epoch
        pause_s = self._ttl_s / RENEWALS
        error: BaseException | None = None
        while True:
            await asyncio.sleep(min(pause_s, self._until - self._clock()))
            if not self.alive:
                return f"it was not renewed within {self._ttl_s:g} s: {error or 'the data server does not answer'}"
            asking = asyncio.ensure_future(self._ask())
            asking.add_done_callback(_heard)
            await asyncio.wait([asking], timeout=self._until - self._clock())
            error = asking.exception() if asking.done() else None
            if error is None and asking.done():
                pause_s = self._ttl_s / RENEWALS
                if self._epoch != epoch:
                    return f"epoch {self._epoch} began"
            elif error is not None and not isinstance(error, PASSING):
                return str(error)
            else:
                pause_s = min(RETRY_S, self._ttl_s / RENEWALS / 2)

    async def release(self) -> None:
        """Give it back, if the data server is there to take it."""
        self._until = 0.0
        try:
            await self._server.call(self._server.calls.release_orchestrator, self._run, self.holder)
        except DataServerError as error:
            log.info("the lease ends by itself: %s", error)

    async def _ask(self) -> None:
        asked = self._clock()
        calls = self._server.calls
        lease = await self._server.call(calls.lease_orchestrator, self._run, self.holder, self._address, self._ttl_s)
        self._until = max(self._until, asked + self._ttl_s * (1 - MARGIN))
        self._epoch = max(self._epoch, lease.orchestrator.epoch)


def _heard(asking: "asyncio.Future[None]") -> None:
    """What a renewal that came too late raised is no longer of interest."""
    if not asking.cancelled():
        asking.exception()
