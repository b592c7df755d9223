"""Tells the data server how syncs ended, as often as it takes, in the order in which they did."""

import asyncio
import logging

from dataserver.errors import DataServerError
from dataserver.weight_sync import WeightSync
from orchestrator.data_server import PASSING, RETRY_S, DataServer

log = logging.getLogger(__name__)


class Reports:
    """Reports that are still to be delivered."""

    def __init__(self, server: DataServer, run: str) -> None:
        self._server = server
        self._run = run
        self._waiting: asyncio.Queue[WeightSync] = asyncio.Queue()

    def add(self, sync: WeightSync) -> None:
        """Deliver it soon."""
        level = logging.INFO if sync.engines else logging.WARNING
        where = f" on {', '.join(sync.engines)}" if sync.engines else ""
        why = f": {sync.detail}" if sync.detail else ""
        log.log(level, "version %s %s%s after %.2f s%s", sync.version, sync.outcome.value, where, sync.seconds, why)
        self._waiting.put_nowait(sync)

    async def run(self) -> None:
        """Deliver, for ever."""
        while True:
            sync = await self._waiting.get()
            await self._deliver(sync)
            self._waiting.task_done()

    async def delivered(self) -> None:
        """Wait until all are."""
        await self._waiting.join()

    async def _deliver(self, sync: WeightSync) -> None:
        while True:
            try:
                await self._server.call(self._server.calls.report_sync, self._run, sync)
            except PASSING as error:
                log.info("the report of version %s waits: %s", sync.version, error)
                await asyncio.sleep(RETRY_S)
            except DataServerError as error:
                log.warning("the report of version %s is not wanted: %s", sync.version, error)
                return
            else:
                return
