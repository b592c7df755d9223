"""What is to go wrong in a fake engine, and when."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Call = Literal[
    "health",
    "status",
    "pause",
    "resume",
    "abort",
    "announce",
    "start",
    "update",
    "finish",
    "reset",
    "tokenize",
    "generate",
]
Action = Literal["die", "http_500", "hang", "slow"]


class FakeFaultError(Exception):
    """A fault that was asked for; answered as HTTP 500."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """At the next `count` calls of `call`, do `action`.

    `die` ends the engine without an answer; `hang` never answers; `slow` answers after `seconds`.
    `after`: the call is carried out first, and only its answer is lost; of an update, once
    `after_tensors` weights are loaded.
    """

    call: Call
    action: Action
    count: int = 1
    seconds: float = 1.0
    after: bool = False
    after_tensors: int = 0


class Faults:
    """Those that are still to come. `die` ends the engine; a thread that hangs is let go by `release`."""

    def __init__(self, die: Callable[[], None]) -> None:
        self._die = die
        self._lock = threading.Lock()
        self._left: list[tuple[Fault, int]] = []
        self._released = threading.Event()

    def add(self, fault: Fault) -> None:
        """Arms it."""
        with self._lock:
            self._left.append((fault, fault.count))

    def release(self) -> None:
        """Lets go of all that hang."""
        self._released.set()

    def meet(self, call: Call, *, after: bool = False, tensors: int = 0) -> None:
        """Does what is armed for this moment of a call; raises `FakeFaultError` for `http_500`."""
        fault = self._take(call, after, tensors)
        if fault is None:
            return
        if fault.action == "die":
            self._die()
        if fault.action in {"die", "hang"}:
            self._released.wait()
        if fault.action == "slow":
            time.sleep(fault.seconds)
        else:
            raise FakeFaultError(f"{call}: {fault.action}, as asked for")

    def _take(self, call: Call, after: bool, tensors: int) -> Fault | None:
        with self._lock:
            for index, (fault, count) in enumerate(self._left):
                if (fault.call, fault.after, fault.after_tensors) == (call, after, tensors):
                    self._left[index] = (fault, count - 1)
                    if count == 1:
                        del self._left[index]
                    return fault
        return None
