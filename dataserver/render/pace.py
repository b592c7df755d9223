"""How fast a rendering goes and how long it still takes, and how others hear of it.

job ──parts done, counts──> Pace ──> RenderingInfo ──> terminal, log, metrics
└──> SharedProgress, a file: processes that wait for the same job
"""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from dataserver.render.part import PartReport
from dataserver.wire.store_info import RenderingInfo

ReportRendering = Callable[[RenderingInfo], None]

# Whoever waits looks about as often.
_WRITE_EVERY_S: Final = 0.5


class Pace:
    """Rates since its first call, which tells what earlier processes left done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = 0.0
        self._first: tuple[int, int, int] | None = None

    def rendering(self, done: int, total: int, report: PartReport) -> RenderingInfo:
        """How far a job is of which `done` of `total` parts are done and came to `report`."""
        now = self._clock()
        if self._first is None or report.rows < self._first[1]:  # the first of all, or of another source
            self._first, self._begun = (done, report.rows, report.tokens), now
        seconds = max(now - self._begun, 1e-9)
        parts, rows, tokens = done - self._first[0], report.rows - self._first[1], report.tokens - self._first[2]
        return RenderingInfo(
            stage="rendering", done=done, total=total, rows=report.rows, tokens=report.tokens,
            rows_per_s=rows / seconds, tokens_per_s=tokens / seconds,
            left_s=seconds * (total - done) / parts if parts else 0.0 if done == total else None,
        )  # fmt: skip


class Stage:
    """The stages that count bytes, as `Pace` counts those of rendering."""

    def __init__(self, name: str, tell: ReportRendering) -> None:
        self._name = name
        self._tell = tell
        self._begun = time.monotonic()
        self._first: int | None = None

    def __call__(self, done: int, total: int) -> None:
        """Tell how many bytes are done, of 0 where nobody knows of how many."""
        if self._first is None:
            self._first = done
        seconds, moved = time.monotonic() - self._begun, done - self._first
        left_s = seconds * (total - done) / moved if moved and total else None
        self._tell(RenderingInfo(stage=self._name, done=done, total=total, left_s=left_s))


class SharedProgress:
    """A file that tells who waits how far a job is. Whoever holds the job's lock writes it, and removes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0.0

    def write(self, info: RenderingInfo) -> None:
        """Write it, if it is time to. A disk that takes none is the job's to complain about."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _WRITE_EVERY_S
        temporary = self._path.with_suffix(".tmp")
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(asdict(info)), encoding="utf-8")
            temporary.replace(self._path)

    def read(self) -> RenderingInfo:
        """How far whoever writes is; `waiting` where that is not known."""
        try:
            return RenderingInfo(**json.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return RenderingInfo(stage="waiting")

    def close(self) -> None:
        """Remove it."""
        self._path.unlink(missing_ok=True)
