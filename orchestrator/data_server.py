"""The data server, from inside an event loop: its client blocks, so calls run in threads, and a watch has its own."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from dataserver.client import RunEventInfo, RunInfo
from dataserver.errors import DataServerError, RunNotFoundError, UnavailableError, WaitExpiredError
from dataserver.weight_sync import Hold, OrchestratorLease, SyncAnswer, SyncState, WeightSync
from orchestrator.waiting import Waiting

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# What passes by itself: the server restarts, or the trainer has not created the run yet.
PASSING = (UnavailableError, WaitExpiredError, RunNotFoundError)

# One thread each for the lease, requests and holds, reports, the state, and what evals ask.
THREADS = 8
RETRY_S = 1.0


class RunCalls(Protocol):
    """The calls that `dataserver.client.DataClient` offers; they block, and raise `dataserver.errors`."""

    def request_sync(self, run: str, version: int | None, *, at_or_after: bool = False) -> SyncAnswer:
        """Ask for the weights of a version, or of the run's last for None."""

    def hold_sync(self, run: str, hold_id: str, ttl_s: float) -> Hold:
        """Take or renew a hold."""

    def release_sync(self, run: str, hold_id: str) -> None:
        """End a hold."""

    def report_sync(self, run: str, sync: WeightSync) -> WeightSync:
        """Say how a sync ended."""

    def sync_state(self, run: str) -> SyncState:
        """All about the run's syncs."""

    def watch_sync_state(self, run: str) -> Iterator[SyncState]:
        """The same, now and after each change."""

    def lease_orchestrator(self, run: str, holder: str, address: str, ttl_s: float) -> OrchestratorLease:
        """Be the run's orchestrator, or stay it."""

    def release_orchestrator(self, run: str, holder: str) -> None:
        """Give the lease back."""

    def get_run(self, run: str) -> RunInfo:
        """The run as it stands."""

    def list_run_events(self, run: str) -> list[RunEventInfo]:
        """What happened to the run, the oldest first."""


class DataServer:
    """Calls in threads. `calls` belongs to whoever made it."""

    def __init__(self, calls: RunCalls) -> None:
        self.calls = calls
        self._threads = ThreadPoolExecutor(THREADS, "data server")

    async def call(self, method: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a method of `calls`; raises what it raises. Cancelling it leaves the thread to its end."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(method, *arguments, **named))

    def close(self) -> None:
        """Begin no more calls. Those under way end with their client's connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Watcher:
    """The state of a run's syncs, as it was last heard of. `changed` is called in the loop after each change."""

    def __init__(self, calls: RunCalls, run: str, changed: Callable[[], None]) -> None:
        self.state: SyncState | None = None
        self._calls = calls
        self._run = run
        self._changed = changed
        self._closed = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._watch, name="watch syncs", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Hear no more; the thread ends with its client's connections. Close it before its client. Idempotent."""
        self._closed.set()

    def take(self, state: SyncState) -> None:
        """Learn of a state that was asked for: the watch brings it a moment later."""
        self.state = state
        self._changed()

    def _watch(self) -> None:
        waiting = Waiting(f"the state of run {self._run}", log)
        while not self._closed.is_set():
            try:
                for state in self._calls.watch_sync_state(self._run):
                    waiting.over()
                    self._hand_over(state)
            except DataServerError as error:
                if self._closed.is_set():
                    return
                if not isinstance(error, UnavailableError):
                    waiting.say(error.message)
            self._closed.wait(RETRY_S)

    def _hand_over(self, state: SyncState) -> None:
        if not self._closed.is_set():
            try:
                self._loop.call_soon_threadsafe(self.take, state)
            except RuntimeError:
                self._closed.set()  # the loop is closed
