"""Which server to try next, how long to wait before, and when to give up.

A server that answers UNAVAILABLE is a pause: the next endpoint is tried, with growing, jittered
waits, until `patience_s` is spent. Whoever waits says for whom and since when.

A store that is being rendered may take hours, and is waited for as long as it comes nearer: patience
begins anew with every answer that tells of more.
"""

import logging
import random
import time
from collections.abc import Sequence
from typing import Final

from dataserver.errors import StoreNotReadyError, UnavailableError

LOG_EVERY_S: Final = 10.0

# The first wait is short, since most outages are one replica of several; the longest bounds how
# late a restarted server is noticed.
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 5.0

_logger = logging.getLogger("dataserver.client")
_rendering_logger = logging.getLogger("dataserver.client.rendering")

# Own generator: the global one belongs to the training code. Seeded by the operating system, so
# that a thousand ranks do not come back in lockstep.
_jitter = random.Random()  # noqa: S311  # not for cryptography


class Failover:
    """The endpoint in use and the outage under way, for one who waits.

    `first` is where to begin, modulo the number of endpoints; `waiter` names who waits in
    messages.
    """

    def __init__(self, endpoints: Sequence[str], *, first: int, patience_s: float, waiter: str) -> None:
        self._endpoints = tuple(endpoints)
        self._index = first % len(self._endpoints)
        self._patience_s = patience_s
        self._waiter = waiter
        self._failures = 0
        self._since = 0.0
        self._since_clock = ""
        self._logged = 0.0
        self._moved = 0.0
        self._heard: dict[str, dict[str, str]] = {}

    @property
    def endpoint(self) -> str:
        """The endpoint to use now."""
        return self._endpoints[self._index]

    def failed(self, error: UnavailableError) -> float:
        """Move on to the next endpoint, to be tried after the returned number of seconds.

        Raises `UnavailableError`, naming endpoints and seconds, when patience is spent.
        """
        now = time.monotonic()
        if self._failures == 0:
            self._since, self._since_clock, self._logged = now, clock(), now - LOG_EVERY_S
            self._moved = now
        gone = self.endpoint
        if isinstance(error, StoreNotReadyError) and error.details != self._heard.get(gone):
            self._heard[gone], self._moved = error.details, now
        waited = now - self._moved
        if waited >= self._patience_s:
            raise self._given_up(error, now) from error
        self._index = (self._index + 1) % len(self._endpoints)
        circle = self._failures // len(self._endpoints)
        self._failures += 1
        if now - self._logged >= LOG_EVERY_S:
            self._logged = now
            self._say(error, gone, waited)
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(circle, 16))
        return min(longest * _jitter.uniform(0.5, 1.0), self._patience_s - waited)

    def succeeded(self) -> None:
        """Note that the endpoint works: an outage, if there was one, is over."""
        if self._failures:
            _logger.warning("%s: %s answers after %.1f s", self._waiter, self.endpoint, time.monotonic() - self._since)
            self._failures = 0

    def _given_up(self, error: UnavailableError, now: float) -> UnavailableError:
        waited = now - self._since
        what = "nothing moved" if isinstance(error, StoreNotReadyError) else "no data server answered"
        return UnavailableError(
            f"{self._waiter}: {what} for {now - self._moved:.1f} s (waited since {self._since_clock}, patience "
            f"{self._patience_s:g} s); tried {', '.join(self._endpoints)}; last answer: {error.message}",
            endpoints=",".join(self._endpoints),
            waited_s=round(waited),
        )

    def _say(self, error: UnavailableError, gone: str, waited: float) -> None:
        if isinstance(error, StoreNotReadyError):
            _rendering_logger.warning(
                "%s waits since %s: %s says that %s", self._waiter, self._since_clock, gone, error.message
            )
            return
        _logger.warning(
            "%s waits for a data server since %s (%.0f of at most %g s): %s is away (%s)%s",
            self._waiter, self._since_clock, waited, self._patience_s, gone, error.message,
            f", next is {self.endpoint}" if self.endpoint != gone else "",
        )  # fmt: skip


def clock(seconds: float | None = None) -> str:
    """The local time of day, now or at `seconds` since 1970, for messages."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))
