"""The transfer under way on rank 0, and how whoever waits in it is woken.

The training thread waits in a call, or for the sender; the orchestrator learns that an engine
died and calls `TrainerService.AbortTransfer`, which comes in on another thread.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainer.weights.sync import Sync, TransferError


class Underway:
    """At most one transfer; for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sync: Sync | None = None
        self._aborted: str | None = None
        self._wake: Callable[[str], None] | None = None

    @property
    def sync_id(self) -> str:
        """The transfer's id; empty without one."""
        with self._lock:
            return "" if self._sync is None else self._sync.sync_id

    def begin(self, sync: Sync) -> None:
        """A transfer begins."""
        with self._lock:
            self._sync, self._aborted = sync, None

    def end(self) -> None:
        """The transfer is over."""
        with self._lock:
            self._sync = self._aborted = None

    def abort(self, sync_id: str, why: str) -> bool:
        """End the transfer of that id at once; returns whether it was under way. Any other is left alone."""
        with self._lock:
            if self._sync is None or self._sync.sync_id != sync_id:
                return False
            self._aborted = f"aborted: {why}" if why else "aborted"
            if self._wake is not None:
                self._wake(self._aborted)
            return True

    def check(self) -> None:
        """Raise `TransferError` if the transfer was aborted."""
        with self._lock:
            if self._aborted is not None:
                raise TransferError(self._aborted)

    @contextmanager
    def waiting(self, wake: Callable[[str], None]) -> Iterator[None]:
        """While inside, an abort calls `wake` with the reason, from its thread. An earlier one does so at once."""
        with self._lock:
            self._wake = wake
            if self._aborted is not None:
                wake(self._aborted)
        try:
            yield
        finally:
            with self._lock:
                self._wake = None
