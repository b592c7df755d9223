"""Conversations that a server renders while it serves: one text source after another, in a process of its own.

    coming ──render_process──> rendered and admitted ──> catalog.admit: calls that name it are answered
                  │ └ how far, why not ──> catalog, log, metrics, health
                  └ ends with the server; what it did is kept, and the next start goes on

A process, so that no rendering holds the interpreter's lock, takes the server's memory or outlives its signals.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from dataserver.config import ServerConfig
from dataserver.errors import REASONS, DataServerError, InternalError, UnavailableError
from dataserver.server.announcer import Announcer
from dataserver.stores import Store, default_index_dir, open_store
from dataserver.streaming.catalog import StoreCatalog
from dataserver.wire.store_info import RenderingInfo

log = logging.getLogger(__name__)

# How long a storage that is out of reach, or a machine without memory, is left alone: longer from time to time.
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0

# How often a process may die over a store.
_LIVES: Final = 3

Process: TypeAlias = "subprocess.Popen[bytes]"

_ERRORS: Final = {reason.name: reason.error for reason in REASONS}


class TextSources:
    """Renders what of `catalog` is still to come. `start` once, then `close`, which is idempotent."""

    def __init__(self, config: ServerConfig, catalog: StoreCatalog, announcer: Announcer) -> None:
        self._config = config
        self._catalog = catalog
        self._announcer = announcer
        self._deaths: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; returns at once."""
        self._task = asyncio.create_task(self._render_all())

    async def close(self) -> None:
        """End what is under way at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _render_all(self) -> None:
        """In rounds: what cannot be rendered yet keeps none of the others waiting."""
        pause_s = _FIRST_PAUSE_S
        while self._catalog.coming:
            for name in self._catalog.coming:
                await self._settle(name)
            if self._catalog.coming:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _settle(self, name: str) -> None:
        """Render and serve it, or note why not; or put it back, where it may still be rendered."""
        try:
            path = await self._render(name)
            # Without the caches: its files are uncompressed Arrow on a disk of this machine, and are mapped.
            store = await asyncio.to_thread(open_store, path, index_dir=self._config.index_dir)
            await asyncio.to_thread(store.prepare)
        except UnavailableError as error:
            log.warning("store %s: %s; trying again after the others", name, error.message)
            self._catalog.put_back(name)
        except InternalError as error:
            self._died(name, error.message)
        except DataServerError as error:
            self._fail(name, error.message)
        except Exception as error:
            log.exception("store %s", name)
            self._died(name, f"the server met {type(error).__name__}; its log has the trace")
        else:
            self._catalog.admit(name, store)
            await self._announced(name, store)

    async def _announced(self, name: str, store: Store) -> None:
        try:
            await self._announcer.ready(name, store)
        except Exception:  # standard output may be closed, for instance
            log.exception("store %s is served, but not everybody was told", name)

    def _died(self, name: str, fault: str) -> None:
        """What was rendered is kept. Memory may be there again, or another server may have gone on."""
        self._deaths[name] += 1
        if self._deaths[name] == _LIVES:
            self._fail(name, f"{fault}. That was tried {_LIVES} times")
        else:
            log.error("store %s: %s; trying again after the others", name, fault)
            self._catalog.put_back(name)

    def _fail(self, name: str, fault: str) -> None:
        self._catalog.fail(name, fault.rstrip("."))
        log.error("store %s was not rendered, and is not served: %s", name, fault)

    async def _render(self, name: str) -> Path:
        job = {
            "store": self._config.stores[name].model_dump(mode="json"),
            "index_dir": str(self._config.index_dir or default_index_dir()),
            "log_format": self._config.log_format,
        }
        process = _begun()
        loop = asyncio.get_running_loop()
        try:
            last = await asyncio.to_thread(
                _heard, process, job, lambda info: loop.call_soon_threadsafe(self._tell, name, info)
            )
        finally:
            _end(process)
        if "path" in last:
            return Path(last["path"])
        if "refused" in last:
            raise _ERRORS[last["refused"]](last["message"])
        raise InternalError(
            f"the process that renders it ended with status {process.wait()}; the server's log says why"
        )

    def _tell(self, name: str, info: RenderingInfo) -> None:
        if self._catalog.rendering(name) is not None:
            self._catalog.tell(name, info)
            self._announcer.rendering(name, info)


def _begun() -> Process:
    """By `subprocess`, which spawns without a fork that gRPC would hear of; the event loop's own way does not."""
    return subprocess.Popen(
        [sys.executable, "-m", "dataserver.server.render_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # A group of its own, so that it ends with the processes that it starts.
        start_new_session=True,
    )


def _heard(process: Process, job: dict[str, Any], tell: Callable[[RenderingInfo], object]) -> dict[str, Any]:
    """What the process says at last of its job; on the way how far it is. Blocks until it ends."""
    # One that died before it read says so by its status.
    with contextlib.suppress(BrokenPipeError):
        if process.stdin is not None:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
    last: dict[str, Any] = {}
    for line in process.stdout or ():
        last = json.loads(line)
        if "rendering" in last:
            tell(RenderingInfo(**last["rendering"]))
    process.wait()
    return last


def _end(process: Process) -> None:
    """Idempotent."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
