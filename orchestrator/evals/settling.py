"""Whether engines may still turn out to serve what nobody saw them serve.

The last version of a run may be on an engine that was not looked at yet, as when another orchestrator takes over, or
that is away for a moment: what only this engine can answer is not lost, and a result that says so would stand for ever.
Of a run of which nothing ever landed there is nothing to wait for.
"""

import asyncio
from collections.abc import Callable

from orchestrator.members import MemberState
from orchestrator.pool import Pool


class Settling:
    """Awaits engines for `patience_s` after the end of a run; `changed` is called when that is over."""

    def __init__(self, pool: Pool, *, patience_s: float, changed: Callable[[], None]) -> None:
        self._pool = pool
        self._patience_s = patience_s
        self._changed = changed
        self._deadline: float | None = None

    def is_over(self, *, ended: bool) -> bool:
        """Whether it was seen what each engine serves, or they were awaited long enough since the run had `ended`."""
        loop = asyncio.get_running_loop()
        if not ended:
            self._deadline = None
        elif self._deadline is None:
            self._deadline = loop.time() + self._patience_s
            loop.call_at(self._deadline, self._changed)
        if not self._pool.moving and all(member.state is MemberState.READY for member in self._pool.members):
            return True
        return self._deadline is not None and loop.time() >= self._deadline
