"""Rows whose blocks nobody has looked at: how they are told of, and what makes them known.

rows ──> UnknownBlocksError ──> whoever may wait calls each `Touch` ──> asks again
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

# Blocks that are checked at once by one who waits; a thread waits for the storage most of the time.
_THREADS = 16


class UnknownBlocksError(Exception):
    """Rows were asked for whose blocks nobody has checked. Never leaves the server."""

    def __init__(self, touches: list["Touch"]) -> None:
        super().__init__(f"{len(touches)} blocks are not known yet")
        self.touches = touches


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """Makes a block known. `store`: the fingerprint of its store."""

    store: str
    block: int
    make_known: Callable[[int], None]

    def __call__(self) -> None:
        """Check the block; raises `StoreDamagedError` for its first fault, and what reading it raises."""
        self.make_known(self.block)


def when_known(ask: Callable[[], T]) -> T:
    """What `ask` returns, once the blocks that it needs are known. Blocks; raises the first fault in row order."""
    while True:
        try:
            return ask()
        except UnknownBlocksError as unknown:
            with ThreadPoolExecutor(min(_THREADS, len(unknown.touches))) as pool:
                found = [pool.submit(touch) for touch in unknown.touches]
            for each in found:
                each.result()
