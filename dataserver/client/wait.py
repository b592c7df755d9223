"""A wait of the training loop: what for, and since when."""

import logging
import time

from dataserver.client.failover import LOG_EVERY_S

_logger = logging.getLogger("dataserver.client")


class Wait:
    """Begins when it is made; `what` says who waits for what since when."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.begin = time.monotonic()
        self._next_log_s = LOG_EVERY_S

    @property
    def waited_s(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.begin

    def log(self, endpoint: str) -> None:
        """Say so, now and then; `endpoint` is who is waited for."""
        if self.waited_s >= self._next_log_s:
            self._next_log_s += LOG_EVERY_S
            _logger.warning("%s from %s (%.0f s)", self.what, endpoint, self.waited_s)
