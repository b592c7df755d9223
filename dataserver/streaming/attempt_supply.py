"""The steps of an attempt, for the stream of one of its ranks.

    plan ─> credit ─> pacing ─> seal
    end of the run ─> pacing ─> closing: offers, as long as a sync is wanted

A step is sealed only when its first micro-batch may go at once: pacing permits it and the rank has a credit for it.
The seal may be made while micro-batches of the step before are on their way, if there are credits for all of these too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from dataserver.config import ServerConfig
from dataserver.errors import DataServerError, InvalidRequestError
from dataserver.ledger.steps import Seal
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.run_spec import BatchSpec
from dataserver.streaming.answers import encode_opened
from dataserver.streaming.attempts import LiveAttempt
from dataserver.streaming.closing import FIRST_TOLD_S, TOLD_EVERY_S
from dataserver.streaming.fetches import Fetches
from dataserver.streaming.opening import Opening
from dataserver.streaming.registry import Registry, Session
from dataserver.streaming.supply import Ready, ReadyStep, Stamp
from dataserver.streaming.waits import Waits
from dataserver.weight_sync import Offer


class AttemptSupply:
    """Implements `Supply` for a rank that the registry seated."""

    def __init__(
        self,
        opening: Opening,
        live: LiveAttempt,
        session: Session,
        *,
        config: ServerConfig,
        registry: Registry,
        waits: Waits,
    ) -> None:
        self._opening = opening
        self._live = live
        self._session = session
        self._config = config
        self._registry = registry
        self._waits = waits
        self._begun_step = opening.next_step - 1
        self._offered = opening.acked_offer
        self._closing_since: float | None = None

    @property
    def name(self) -> str:
        """Run and attempt."""
        return f"run {self._opening.run!r} attempt {self._opening.attempt}"

    @property
    def rank(self) -> str:
        """The world rank."""
        return f"rank {self._opening.world_rank}"

    @property
    def step(self) -> int:
        """Of the attempt."""
        return self._begun_step

    @property
    def dp_rank(self) -> int:
        """As the rank opened."""
        return self._opening.dp_rank

    @property
    def batch(self) -> BatchSpec:
        """The attempt's."""
        return self._live.attempt.batch

    @property
    def fetches(self) -> Fetches:
        """The attempt's."""
        return self._live.fetches

    @property
    def over(self) -> "asyncio.Future[DataServerError]":
        """Done when the attempt is over."""
        return self._live.over

    async def opened(self) -> bytes:
        """The attempt's base, and its opening offer."""
        offer = await self._live.opening_offer() if self._opening.takes_offers else None
        return encode_opened(self._live.attempt.base, self._registry.server_id, offer)

    async def next(self, credit: Callable[[], Awaitable[None]]) -> Ready:
        """Seal the step that follows, as soon as it may go; behind the last one, what the ledger decides."""
        step = self._begun_step + 1
        plan = await self._live.plan(step)
        if isinstance(plan, EndOfRun) and self._opening.takes_offers:
            return await self._conclude(step, plan)
        if isinstance(plan, Plan):
            await credit()
        await self._pace(self._live.pacing.permitted(step), step)
        ready = await self._live.seal(step)
        if isinstance(ready.plan, Plan):
            self._live.prefetch(step)
            self._begun_step = step
        return ready

    def make_ready(self) -> None:
        """Begin to seal the next step."""
        self._live.seal_meanwhile(self._begun_step + 1)

    def ready_next(self) -> ReadyStep | None:
        """The next step, if it is sealed."""
        return self._live.sealed(self._begun_step + 1)

    def acknowledge(self, step: int, offer: int) -> None:
        """Tell the attempt, and by it the ledger."""
        if not 0 <= offer <= self._offered:
            raise InvalidRequestError(
                f"{self.rank} acknowledged offer {offer}, but {self._offered} is the last that this stream sent"
            )
        if not 0 <= step <= self._begun_step:
            raise InvalidRequestError(
                f"{self.rank} acknowledged step {step}, but step {self._begun_step} is the last that this stream began"
            )
        self._live.acknowledge(self._opening.world_rank, step, offer)

    async def release(self) -> None:
        """Leave the rank's seat, to the end even if this is cancelled."""
        await self._registry.release(self._live, self._opening.world_rank, self._session)

    async def _conclude(self, step: int, end: EndOfRun) -> Ready:
        """An offer, the end, or why neither is there yet."""
        await self._pace(self._live.pacing.drained(step - 1), step)
        told = self._closing_since is not None
        if self._closing_since is None:
            self._closing_since = time.monotonic()
        for_s = TOLD_EVERY_S if told else FIRST_TOLD_S
        answer = await self._live.closing.follows(step, self._offered, for_s=for_s, since=self._closing_since)
        if isinstance(answer, Seal):
            return ReadyStep(plan=end, stamp=Stamp(sync_weights=False))
        if isinstance(answer, Offer):
            self._offered, self._closing_since = answer.number, None
        return answer

    async def _pace(self, paced: "asyncio.Future[None]", step: int) -> None:
        await self._waits.until(
            paced,
            who=self.name,
            cause="pacing",
            limit_s=self._config.pacing_wait_s,
            describe=lambda: self._waited_for(step),
        )

    def _waited_for(self, step: int) -> str:
        """Whom a stream waits for that may not begin `step`, in words."""
        pacing = self._live.pacing
        ranks = pacing.laggards()
        named = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
        return f"rank {named} to acknowledge step {pacing.consumed_step + 1} before step {step} may begin"
