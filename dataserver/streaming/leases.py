"""The streams that this process holds, in the ledger: noted when they open, renewed, closed.

Whatever is lost on the way lapses by itself: what nobody renews ends after one lease.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

from dataserver.errors import DataServerError, UnavailableError
from dataserver.ledger.interface import Ledger, Run
from dataserver.streaming.opening import Opening
from dataserver.streaming.threads import Threads

log = logging.getLogger(__name__)

# Leases are renewed three times before they lapse.
RENEWALS_PER_LEASE = 3

# Pause between tries at telling the ledger that a stream is gone.
RELEASE_PAUSE_S = 1.0


class Leases:
    """Streams by the ids that `held` returns."""

    def __init__(
        self, held: Callable[[], Collection[str]], *, ledger: Ledger, threads: Threads, lease_s: float
    ) -> None:
        self._held = held
        self._ledger = ledger
        self._threads = threads
        self._lease_s = lease_s
        self._background: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to renew."""
        self.spawn(self._renew())

    async def open(self, stream_id: str, opening: Opening) -> Run:
        """Tell the ledger of a stream. One that is left meanwhile, or whose answer is lost, is closed again."""
        noting = asyncio.ensure_future(
            self._threads.ledger(
                self._ledger.open_stream,
                opening.run,
                attempt=opening.key,
                world_rank=opening.world_rank,
                dp_rank=opening.dp_rank,
                next_step=opening.next_step,
                stream_id=stream_id,
                takes_offers=opening.takes_offers,
                acked_offer=opening.acked_offer,
            )
        )
        try:
            return await asyncio.shield(noting)
        except asyncio.CancelledError:
            self.spawn(self._undo_open(noting, stream_id))
            raise
        except UnavailableError:
            self.spawn(self.persist(lambda: self.close(stream_id)))
            raise

    async def close(self, stream_id: str) -> None:
        """Tell the ledger that a stream is gone."""
        try:
            await self._threads.ledger(self._ledger.close_stream, stream_id)
        except UnavailableError:
            raise
        except DataServerError as error:
            log.warning("closing a stream in the ledger failed, its lease will lapse: %s", error.message)

    async def persist(self, call: Callable[[], Awaitable[None]]) -> None:
        """Make a call that the ledger must hear of, until it does or the stream's lease has lapsed by itself."""
        until = time.monotonic() + self._lease_s
        while True:
            try:
                await call()
            except UnavailableError as error:
                if time.monotonic() > until:
                    log.warning("the ledger was not told that a stream is gone; its lease lapsed: %s", error.message)
                    return
                await asyncio.sleep(RELEASE_PAUSE_S)
            else:
                return

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Do `work` in the background, until `stop`."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def stop(self) -> None:
        """Stop everything. Idempotent."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _undo_open(self, noting: "asyncio.Future[Run]", stream_id: str) -> None:
        try:
            await noting
        except UnavailableError:
            pass
        except DataServerError:
            return
        await self.persist(lambda: self.close(stream_id))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / RENEWALS_PER_LEASE)
            held = tuple(self._held())
            if not held:
                continue
            try:
                await self._threads.ledger(self._ledger.renew_leases, held)
            except DataServerError as error:
                log.warning("renewing the leases of %d streams is tried again: %s", len(held), error.message)
            except Exception:
                log.exception("renewing the leases of %d streams failed; it is tried again", len(held))
