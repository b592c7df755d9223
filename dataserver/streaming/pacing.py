"""Which step may be sealed: one that is at most `max_steps_ahead` beyond the one that is being consumed.

    consumed = lowest acknowledged step over all world ranks
    step N may be sealed  <=>  N <= consumed + 1 + max_steps_ahead
    step N may be sent    <=>  it is sealed, or may be sealed

Acknowledgements that arrived here count at once; those of ranks on other servers come with the ledger's
progress. Within an attempt everything only grows.
"""

import asyncio
from collections.abc import Sequence

from dataserver.ledger.steps import Progress


class Pacing:
    """What the ranks of one attempt consumed, and who waits for them."""

    def __init__(self, *, acked_steps: Sequence[int], sealed_step: int, max_steps_ahead: int) -> None:
        self._acked = list(acked_steps)
        self._count()
        self._sealed = sealed_step
        self._max_steps_ahead = max_steps_ahead
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._draining: dict[int, asyncio.Future[None]] = {}

    @property
    def consumed_step(self) -> int:
        """The highest step that every world rank acknowledged."""
        return self._consumed

    @property
    def sealed_step(self) -> int:
        """The highest step known to be sealed."""
        return self._sealed

    @property
    def waiting(self) -> bool:
        """Whether a stream waits for other ranks."""
        return bool(self._waiting or self._draining)

    def permits(self, step: int) -> bool:
        """Whether `step` may be sent now."""
        return step <= max(self._sealed, self.consumed_step + 1 + self._max_steps_ahead)

    def permitted(self, step: int) -> "asyncio.Future[None]":
        """Done when `step` may be sent. Shared: do not cancel."""
        waiting = self._waiting.get(step)
        if waiting is not None:
            return waiting
        waiting = asyncio.get_running_loop().create_future()
        if self.permits(step):
            waiting.set_result(None)
        else:
            self._waiting[step] = waiting
        return waiting

    def drained(self, step: int) -> "asyncio.Future[None]":
        """Done when every rank consumed `step`. Shared: do not cancel."""
        draining = self._draining.get(step)
        if draining is None:
            draining = asyncio.get_running_loop().create_future()
            if step <= self.consumed_step:
                draining.set_result(None)
            else:
                self._draining[step] = draining
        return draining

    def laggards(self) -> list[int]:
        """World ranks that acknowledged least."""
        consumed = self.consumed_step
        return [rank for rank, step in enumerate(self._acked) if step == consumed]

    def acknowledge(self, world_rank: int, step: int) -> bool:
        """Note an ack that arrived here; say whether it was news."""
        before = self._acked[world_rank]
        if step <= before:
            return False
        self._acked[world_rank] = step
        if before == self._consumed:
            self._behind -= 1
            if not self._behind:
                self._count()
                self._release()
        return True

    def note_sealed(self, step: int) -> None:
        """Note that `step` is sealed."""
        if step > self._sealed:
            self._sealed = step
            self._release()

    def update(self, progress: Progress) -> None:
        """Note what the ledger knows."""
        self._acked = [max(mine, theirs) for mine, theirs in zip(self._acked, progress.acked_steps, strict=True)]
        self._count()
        self._sealed = max(self._sealed, progress.sealed_step)
        self._release()

    def _count(self) -> None:
        """Kept, because every rank of a large job acknowledges every step."""
        self._consumed = min(self._acked)
        self._behind = self._acked.count(self._consumed)

    def _release(self) -> None:
        for step in [step for step in self._waiting if self.permits(step)]:
            self._waiting.pop(step).set_result(None)
        for step in [step for step in self._draining if step <= self.consumed_step]:
            self._draining.pop(step).set_result(None)
