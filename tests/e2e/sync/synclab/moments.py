"""Moments of a handover at which a story may kill somebody."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

# A call is under way by then; fake engines that a story makes slow take longer.
INSIDE_S = 0.15


class Moment(StrEnum):
    """Moments, in their order."""

    BEFORE_PREPARE = "before_prepare"
    IN_PREPARE = "in_prepare"
    PREPARED = "prepared"
    SENDING = "sending"
    BEFORE_COMMIT = "before_commit"
    IN_COMMIT = "in_commit"
    COMMITTED = "committed"
    STEP_DONE = "step_done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """SIGKILL for `victim` at the first `moment` of a version from `version` on."""

    victim: str
    moment: str
    version: int = 0


class Bomb:
    """Kills once, whoever reaches the moment. Victims' pids lie in `pids`, a file each, which the cell writes."""

    def __init__(self, kills: list[Kill], pids: Path, fired: Path) -> None:
        self._kills = kills
        self._pids = pids
        self._fired = fired

    def reach(self, moment: str, version: int) -> None:
        """Say that the handover of `version` is there."""
        for number, kill in enumerate(self._kills):
            if moment == kill.moment and version >= kill.version and self._first(number):
                self._strike(kill)

    @contextmanager
    def within(self, moment: str, version: int) -> Iterator[None]:
        """Say that a call of `version` is under way inside the block."""
        timer = threading.Timer(INSIDE_S, self.reach, (moment, version))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _first(self, number: int) -> bool:
        try:
            os.close(os.open(self._fired / f"kill-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _strike(self, kill: Kill) -> None:
        # A victim that is dead already will be back.
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int((self._pids / kill.victim).read_text()), signal.SIGKILL)
