"""Who waits says for what, why and since when: at once when the reason changes, and now and then while it stands."""

import logging
import time
from collections.abc import Callable

# Between two lines about the same.
REMIND_S = 60.0


class Waiting:
    """One thing that is waited for, `what`. `clock`: in seconds."""

    def __init__(self, what: str, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._log = log
        self._clock = clock
        self._begun: tuple[float, str] | None = None
        self._said = (0.0, "")

    def say(self, why: str) -> None:
        """It is not there yet, and why."""
        now = self._clock()
        if self._begun is None:
            self._begun = now, time.strftime("%H:%M:%S")
        begun, since = self._begun
        said, told = self._said
        if why != told or now - said >= REMIND_S:
            self._said = now, why
            self._log.warning("waits for %s since %s, %.0f s: %s", self._what, since, now - begun, why)

    def over(self) -> None:
        """It is there."""
        self._begun, self._said = None, (0.0, "")
