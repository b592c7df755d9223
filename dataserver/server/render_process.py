"""The process that renders one text source of a server: `python -m dataserver.server.render_process`.

Its standard input carries the store's configuration as one line of JSON, and then stays open as long as the server
lives: end of file ends this process and those that it started. Its standard output gets lines of JSON:

    {"rendering": {...}}                      how far it is: see `RenderingInfo`
    {"path": "..."}                           last: where the store is
    {"refused": REASON, "message": "..."}     or: why there is none
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TextIO

from dataserver.config import StoreConfig
from dataserver.errors import REASONS, DataServerError
from dataserver.hosting.logs import set_up_logs
from dataserver.render import rendered
from dataserver.wire.store_info import RenderingInfo
from dataserver.wire.texts import shortened

REFUSED: Final = 2

# How often the server hears how far it is, where the stage stays the same.
_TELL_EVERY_S: Final = 0.5

# A line that the server reads has its limit.
_MESSAGE_BYTES: Final = 16_000

# Rendering takes every core, and streams go first.
_NICENESS: Final = 5

_REASONS: Final = {reason.error: reason.name for reason in REASONS}

log = logging.getLogger(__name__)


def main() -> int:
    """Render; return the exit status."""
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_server, daemon=True, name="server-watch").start()
    # Whatever packages print goes to the log, and not between the lines for the server.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as server:
        os.dup2(2, 1)
        set_up_logs(job["log_format"], "rendering")
        os.nice(_NICENESS)
        return _render(StoreConfig.model_validate(job["store"]), Path(job["index_dir"]), server)


def _render(store: StoreConfig, index_dir: Path, server: TextIO) -> int:
    if store.render is None:
        raise ValueError(f"{store.path} is no text source")
    told = _Told(server)
    try:
        path = rendered(store.path, store.render, index_dir, storage_options=store.storage, progress=told.rendering)
    except DataServerError as error:
        told.say({"refused": _REASONS[type(error)], "message": shortened(error.message, _MESSAGE_BYTES)})
        return REFUSED
    told.say({"path": str(path)})
    return 0


class _Told:
    """What the server is told."""

    def __init__(self, server: TextIO) -> None:
        self._server = server
        self._stage = ""
        self._next = 0.0

    def rendering(self, info: RenderingInfo) -> None:
        """Say how far it is, if it is time to."""
        now = time.monotonic()
        if info.stage == self._stage and now < self._next:
            return
        self._stage, self._next = info.stage, now + _TELL_EVERY_S
        self.say({"rendering": asdict(info)})

    def say(self, line: dict[str, Any]) -> None:
        """Say it at once."""
        self._server.write(json.dumps(line) + "\n")
        self._server.flush()


def _end_with_server() -> None:
    sys.stdin.read()
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
