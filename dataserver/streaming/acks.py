"""What ranks consumed, until the ledger was told."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from dataserver.errors import PreconditionError, RunNotFoundError

T = TypeVar("T")


class Acks(Generic[T]):
    """The newest ack of each world rank, of a step or an offer. `record` tells the ledger."""

    def __init__(self, record: Callable[[Mapping[int, int]], Awaitable[T]]) -> None:
        self._record = record
        self._steps: dict[int, int] = {}
        self._lock = asyncio.Lock()

    @property
    def waiting(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._steps)

    def add(self, world_rank: int, step: int) -> None:
        """Note an ack."""
        self._steps[world_rank] = step

    async def flush(self) -> T | None:
        """Tell the ledger all that it was not told; None if there was nothing. What failed is kept for the next try."""
        async with self._lock:
            steps, self._steps = self._steps, {}
            if not steps:
                return None
            try:
                return await self._record(steps)
            except (PreconditionError, RunNotFoundError):
                raise
            except BaseException:  # a cancelled flush too: after the last step nobody says it again
                self._steps = steps | self._steps
                raise
