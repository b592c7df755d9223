"""Tells the data server how syncs ended, from a thread of its own: training never waits for that."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from dataserver.errors import DataServerError
from dataserver.weight_sync import WeightSync

log = logging.getLogger(__name__)


class ReportThread:
    """Delivers results in order. `deliver` waits for a server that is away as long as it likes."""

    def __init__(self, deliver: Callable[[WeightSync], None]) -> None:
        self._deliver = deliver
        self._queue: SimpleQueue[WeightSync | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sync reports", daemon=True)
        self._thread.start()

    def add(self, ended: WeightSync) -> None:
        """Report this, soon."""
        self._queue.put(ended)

    def finish(self, timeout_s: float) -> None:
        """Let what was added be delivered, for so long at most; nothing can be added any more."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (ended := self._queue.get()) is not None:
            try:
                self._deliver(ended)
            except DataServerError as error:
                log.warning("the data server did not take the report of sync %s: %s", ended.sync_id, error)
            except Exception:
                # Whatever it is, the reports that follow are not to be lost with this one.
                log.exception("the report of sync %s was not delivered", ended.sync_id)
