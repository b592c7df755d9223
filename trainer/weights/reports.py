"""Tells the data server how syncs ended, from a thread of its own: training never waits for that."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from dataserver.errors import DataServerError
from trainer.weights.sync import SyncResult

log = logging.getLogger(__name__)


class Reports:
    """Delivers results in order. `deliver` waits for a server that is away as long as it likes."""

    def __init__(self, deliver: Callable[[SyncResult], None]) -> None:
        self._deliver = deliver
        self._queue: SimpleQueue[SyncResult | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sync reports", daemon=True)
        self._thread.start()

    def add(self, result: SyncResult) -> None:
        """Report this, soon."""
        self._queue.put(result)

    def close(self, timeout_s: float) -> None:
        """Let what was added be delivered, for so long at most. Idempotent."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (result := self._queue.get()) is not None:
            try:
                self._deliver(result)
            except DataServerError as error:
                log.warning("the data server did not take the report of sync %s: %s", result.sync.sync_id, error)
