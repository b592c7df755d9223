"""What follows the last step of an attempt whose ranks take offers.

    all ranks consumed the last step ──> nothing wanted, or too late ──> the end
                                    └──> wanted ──> an offer ──> acks, a report ──> …

The ledger decides, once for all servers; here it is asked until it has, and streams are told why they wait.
"""

import asyncio
from collections.abc import Awaitable, Callable

from dataserver.ledger.steps import Seal
from dataserver.streaming.once import Once
from dataserver.streaming.waits import Waits
from dataserver.weight_sync import Offer, ShutdownHold

# How often the ledger is asked while it waits for ranks, a report or an orchestrator.
POLL_S = 0.1

# After so long a stream is told why it waits, and again each time; clients take it as a sign of life.
FIRST_TOLD_S = 1.0
TOLD_EVERY_S = 10.0

# Offers that are kept for streams that lag behind. One more is read from the ledger.
KEPT_OFFERS = 16


class Closing:
    """The decisions of one attempt, each asked for once in this process.

    `conclude(step, after)` asks the ledger what follows the offer `after`, where `step` does not exist.
    """

    def __init__(
        self, name: str, conclude: Callable[[int, int], Awaitable[Offer | Seal | ShutdownHold]], waits: Waits
    ) -> None:
        self._name = name
        self._conclude = conclude
        self._waits = waits
        self._decided: Once[int, Offer | Seal] = Once(KEPT_OFFERS)
        self._hold = ShutdownHold(reason="the ledger's answer", deadline=None)

    async def follows(self, step: int, after: int, *, for_s: float, since: float) -> Offer | Seal | ShutdownHold:
        """What follows the offer `after`, or after `for_s` seconds why that is not decided yet.

        `since`: when the stream began to wait, by the monotonic clock.
        """
        decided = self._decided.start(after, lambda: self._decide(step, after))
        done = await self._waits.for_a_while(
            decided, for_s=for_s, since=since, who=self._name, cause="sync", describe=lambda: self._hold.reason
        )
        return decided.result() if done else self._hold

    def close(self) -> None:
        """Ask no more. Idempotent."""
        self._decided.cancel()

    async def _decide(self, step: int, after: int) -> Offer | Seal:
        while isinstance(answer := await self._conclude(step, after), ShutdownHold):
            self._hold = answer
            await asyncio.sleep(POLL_S)
        return answer
