"""Every wait has a limit, says for whom and since when, and is counted.

Many ranks wait for the same thing at once, so log lines are limited per waiter and cause, not per rank.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from dataserver.errors import WaitExpiredError
from dataserver.streaming.metrics import Metrics

log = logging.getLogger(__name__)

# The first line of a wait comes after this long; the same waiter and cause is not mentioned more often.
LOG_EVERY_S = 10.0

# Keys of log limits that are remembered.
REMEMBERED_KEYS = 4096


class Waits:
    """How streams wait."""

    def __init__(self, metrics: Metrics, *, log_every_s: float = LOG_EVERY_S) -> None:
        self._metrics = metrics
        self._log_every_s = log_every_s
        self._logged: dict[tuple[str, str], float] = {}

    async def until(
        self, ready: "asyncio.Future[Any]", *, who: str, cause: str, limit_s: float, describe: Callable[[], str]
    ) -> None:
        """Wait for `ready`, which stays the caller's.

        `who` waits, as in "run 'chat'"; `describe` says now for what, as in "rank 3 to
        acknowledge step 7". After `limit_s` seconds
        `WaitExpiredError` is raised with it.
        """
        if ready.done():
            return
        begun = time.monotonic()
        waiting = self._metrics.waiting.labels(cause)
        waiting.inc()
        try:
            while not ready.done():
                left = begun + limit_s - time.monotonic()
                if left <= 0:
                    raise WaitExpiredError(
                        f"{who}: waited {limit_s:g} s for {describe()}; the limit is reached", cause=cause
                    )
                await asyncio.wait((ready,), timeout=min(left, self._log_every_s))
                if not ready.done():
                    self._log(who, cause, time.monotonic() - begun, describe)
        finally:
            waiting.dec()
            self._metrics.wait_seconds.labels(cause).inc(time.monotonic() - begun)

    async def for_a_while(
        self,
        ready: "asyncio.Future[Any]",
        *,
        for_s: float,
        since: float,
        who: str,
        cause: str,
        describe: Callable[[], str],
    ) -> bool:
        """Wait for `ready` for `for_s` seconds at most, and say whether it is there; as `until` besides.

        `since`: when the whole wait began, of which this is a part, by the monotonic clock.
        """
        if ready.done():
            return True
        begun = time.monotonic()
        waiting = self._metrics.waiting.labels(cause)
        waiting.inc()
        try:
            await asyncio.wait((ready,), timeout=for_s)
            if not ready.done():
                self._log(who, cause, time.monotonic() - since, describe)
            return ready.done()
        finally:
            waiting.dec()
            self._metrics.wait_seconds.labels(cause).inc(time.monotonic() - begun)

    def _log(self, who: str, cause: str, waited_s: float, describe: Callable[[], str]) -> None:
        now = time.monotonic()
        last = self._logged.get((who, cause))
        if last is not None and now - last < self._log_every_s:
            return
        if len(self._logged) >= REMEMBERED_KEYS:
            self._logged.clear()
        self._logged[(who, cause)] = now
        log.warning("%s: waiting for %s since %.0f s", who, describe(), waited_s)
