"""How far a long command is, on standard error.

A terminal gets one line that is written over and wiped at the end; a log gets a line every few seconds.
"""

import sys
import time
from typing import Final

# A command that is done sooner needs no bar.
_BAR_AFTER_S: Final = 1.0
_BAR_EVERY_S: Final = 0.2
_LINE_EVERY_S: Final = 5.0
_BAR_WIDTH: Final = 40


class Progress:
    """Call it with bytes done and bytes in all, as often as you like; `what` is being done to them: "checking"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._begun = time.monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._next = self._begun + (_BAR_AFTER_S if self._is_terminal else _LINE_EVERY_S)
        self._shown = False

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        """Show how far it is, if it is time to."""
        now = time.monotonic()
        if now < self._next:
            return
        share = done_bytes / max(1, total_bytes)
        left_s = (now - self._begun) * (1 - share) / max(share, 1e-9)
        size = f"{share:.0%} of {total_bytes / 1e9:.2f} GB, {left_s:.0f} s left"
        if self._is_terminal:
            bar = ("#" * round(share * _BAR_WIDTH)).ljust(_BAR_WIDTH, ".")
            print(f"\r{self._what} {bar} {size} ", end="", file=sys.stderr, flush=True)
            self._next, self._shown = now + _BAR_EVERY_S, True
        else:
            print(f"{self._what}: {size}", file=sys.stderr, flush=True)
            self._next = now + _LINE_EVERY_S

    def close(self) -> None:
        """Wipe the line of a terminal. Idempotent."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._shown = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
