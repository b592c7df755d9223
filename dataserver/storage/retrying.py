"""Trying again: the one place that decides how often, how soon and for how long.

    request ── breaks off after k bytes ──> wait, ask for the rest from byte k on
            ├─ credentials refused ───────> fetch new ones, once
            ├─ gone, or another version ──> StoreDamagedError, at once
            └─ no progress for long ──────> UnavailableError, naming the object

The libraries below do not retry by themselves, so that waits neither multiply nor hide. What was
received is kept: nothing is asked for twice, and nothing is skipped.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from dataserver.errors import InternalError, InvalidConfigError, StoreDamagedError, StoreNotFoundError, UnavailableError
from dataserver.storage.objects import ObjectInfo

T = TypeVar("T")
Piece = bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPolicy:
    """When to give up. Times in seconds.

    A call may be silent for `stall_s` and take `deadline_s` in all, a read a second more for each
    `slowest_bytes`: a slow connection that brings bytes all the while is not given up. Of `tries` in
    a row that bring not one byte the last one's fault is told. Between two tries lies a random wait
    below a bound that doubles from `backoff_s` to `longest_backoff_s`.
    """

    deadline_s: float = 120.0
    slowest_bytes: int = 1 << 20
    stall_s: float = 20.0
    tries: int = 8
    backoff_s: float = 0.2
    longest_backoff_s: float = 10.0


class StorageFaultError(Exception):
    """Base of what an adapter reports; its message holds nothing secret."""


class TransientError(StorageFaultError):
    """Broke off, timed out, or the storage is overloaded: worth another try."""


class DeniedError(StorageFaultError):
    """The credentials were refused, or there are none."""


class RejectedError(StorageFaultError):
    """The storage does not accept such a request, whoever asks."""


class MissingError(StorageFaultError):
    """There is no such object."""


class ChangedError(StorageFaultError):
    """The object is another version than the one that was asked for."""


class Attempts:
    """The tries of one call. `what` names the object in errors, `done` what is to happen to it.

    `refresh` fetches credentials anew.
    """

    def __init__(
        self, what: str, policy: ReadPolicy, refresh: Callable[[], None] | None = None, *, done: str = "read"
    ) -> None:
        self._what = what
        self._done = done
        self._policy = policy
        self._refresh = refresh
        self._limit_s = policy.deadline_s
        self._begun = time.monotonic()
        self._in_vain = 0

    def run(self, operation: Callable[[], T]) -> T:
        """The result of `operation`, tried as often as is worth it; several may share one deadline, one by one."""
        self._check_deadline("the time was over before all was asked for")
        self._in_vain = 0
        while True:
            try:
                return operation()
            except StorageFaultError as fault:
                self._after(fault)

    def read(self, fetch: Callable[[int, int], Iterator[Piece]], info: ObjectInfo, begin: int, end: int) -> bytes:
        """Bytes `begin` up to `end` of the object; `fetch(a, b)` asks for a range and yields its pieces in order."""
        if not 0 <= begin <= end <= info.size:
            raise InternalError(f"bytes {begin} to {end} of {self._what}, which has {info.size}")
        self._limit_s = self._policy.deadline_s + (end - begin) / self._policy.slowest_bytes
        pieces: list[Piece] = []
        at = begin
        while at < end:
            asked_at = at
            try:
                for piece in fetch(at, end):
                    pieces.append(piece)
                    at += len(piece)
                    self._check_deadline(f"{at - begin:,} of {end - begin:,} bytes had come")
                if at < end:
                    raise TransientError(f"the answer ended after {at - asked_at:,} of {end - asked_at:,} bytes")
            except MissingError as fault:
                raise StoreDamagedError(f"{self._what} was admitted and is not there any more ({fault}).") from fault
            except StorageFaultError as fault:
                self._in_vain = 0 if at > asked_at else self._in_vain
                self._after(fault)
        if at > end:
            raise StoreDamagedError(f"{self._what}: asked for bytes {begin} to {end}, got {at - end} more than that.")
        return b"".join(pieces)

    def _after(self, fault: StorageFaultError) -> None:
        """Wait until the next try, or raise what the fault comes to."""
        match fault:
            case MissingError():
                raise StoreNotFoundError(f"{self._what} is not there ({fault}).") from fault
            case ChangedError():
                raise StoreDamagedError(
                    f"{self._what} changed since it was admitted ({fault}). A store is never written to: put the new "
                    "one elsewhere, or open it again."
                ) from fault
            case RejectedError():
                raise InvalidConfigError(
                    f"{self._what} cannot be asked for in this way ({fault}). Check bucket, endpoint, region, account."
                ) from fault
            case DeniedError() if self._refresh is not None:
                refresh, self._refresh = self._refresh, None
                refresh()
                return
            case DeniedError():
                raise UnavailableError(
                    f"{self._what}: the storage refuses the credentials of this process, fresh ones too ({fault}). "
                    f"Check that they are there, valid, and allow it to be {self._done}."
                ) from fault
        self._in_vain += 1
        if self._in_vain >= self._policy.tries:
            raise UnavailableError(
                f"{self._what}: {self._in_vain} tries in a row failed, the last with: {fault}. "
                "Check that endpoint and region are the storage's, and the network."
            ) from fault
        bound = min(self._policy.backoff_s * 2 ** (self._in_vain - 1), self._policy.longest_backoff_s)
        # Random over the whole interval: many readers that fail together do not come back together.
        wait = random.uniform(0.0, bound)  # noqa: S311
        self._check_deadline(f"the last try failed with: {fault}", wait)
        time.sleep(wait)

    def _check_deadline(self, state: str, ahead_s: float = 0.0) -> None:
        if time.monotonic() + ahead_s - self._begun > self._limit_s:
            raise UnavailableError(f"{self._what} was not {self._done} within {self._limit_s:.3g} s: {state}.")
