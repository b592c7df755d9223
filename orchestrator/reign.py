"""One epoch of the lease: everything that calls engines lives in it, and ends before it does.

lease ──> keeper      looks how engines are, restarts them
coordinator takes part in transfers
evals       ask engines, say what weights they want
demand      tells the data server
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from dataserver.errors import DataServerError
from dataserver.weight_sync import SyncState, WeightSync
from orchestrator.config import OrchestratorConfig
from orchestrator.data_server import DataServer, Watcher
from orchestrator.demand import Demand
from orchestrator.keeper import Keeper
from orchestrator.lease import Lease
from orchestrator.metrics import Metrics
from orchestrator.pool import Pool
from orchestrator.trainer_calls import TrainerCalls
from orchestrator.transfers.coordinator import Coordinator
from orchestrator.transfers.values import CurrentAttempt
from orchestrator.wants import Wants, Wishers

log = logging.getLogger(__name__)

# A trainer waits for the answer to its prepare meanwhile.
LOOK_UP_S = 5.0


class Evals(Wishers, Protocol):
    """Evals of one epoch."""

    async def close(self) -> None:
        """Ask no engine any more. Idempotent."""


class NoEvals:
    """An orchestrator without evals moves the weights that others ask for."""

    idle = True

    def wants(self, _state: SyncState) -> Wants:
        """Nothing."""
        return Wants()

    async def close(self) -> None:
        """Nothing is asked of an engine."""


class Reign:
    """An orchestrator while it has the lease.

    `evals` makes them; they call what they are given whenever they may want something else.
    """

    def __init__(
        self,
        config: OrchestratorConfig,
        *,
        epoch: int,
        server: DataServer,
        watcher: Watcher,
        pool: Pool,
        lease: Lease,
        metrics: Metrics,
        trainer: TrainerCalls,
        report: Callable[[WeightSync], None],
        evals: Callable[[Callable[[], None]], Evals],
    ) -> None:
        self._run = config.run.name
        self._server = server
        self._watcher = watcher
        self._pool = pool
        self._lease = lease
        self._metrics = metrics
        self._keeper = Keeper(pool, every_s=config.pool.health_every_s)
        self._woken = asyncio.Event()
        self._known_attempt = CurrentAttempt()
        self.evals = evals(self.wake)
        self._demand = Demand(server, run=self._run, hold_id=f"{lease.holder}/evals", ttl_s=config.pool.lease_s)
        self.coordinator = Coordinator(
            run=self._run,
            epoch=epoch,
            pool=pool,
            config=config.weights,
            attempt=self._attempt,
            displaced=self._is_displaced,
            restart=self._keeper.restart,
            tell_trainer=trainer.abort,
            report=report,
        )

    def wake(self) -> None:
        """Something changed: look again what is wanted."""
        self._woken.set()

    async def run(self, ending: asyncio.Event, drain_s: float) -> bool:
        """Until the lease or the run is over, or `ending` is set; returns whether there is nothing more to do."""
        self._pool.forget()
        self.wake()
        lease = asyncio.ensure_future(self._lease.keep())
        told = asyncio.ensure_future(ending.wait())
        governing = asyncio.ensure_future(self._govern())
        working = [asyncio.ensure_future(work) for work in self._work()]
        try:
            await asyncio.wait([lease, told, governing, *working], return_when=asyncio.FIRST_COMPLETED)
            if lease.done():
                log.warning("the lease is over: %s", lease.result())
                return False
            await self._drain(drain_s)
            for work in (governing, *working):
                if work.done():
                    work.result()
            return True
        finally:
            # All are told first, then waited for: nobody works on because another one takes long to end.
            tasks = (lease, told, governing, *working)
            for task in tasks:
                task.cancel()
            await asyncio.gather(self.coordinator.close(), self.evals.close(), asyncio.wait(tasks))

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        return [self._keeper.run(), self._demand.run()]

    async def _drain(self, limit_s: float) -> None:
        """Let the transfer under way end, and want nothing any more."""
        self.coordinator.drain()
        try:
            async with asyncio.timeout(limit_s):
                await self.coordinator.idle()
                await self._demand.release()
        except TimeoutError:
            log.warning("a transfer did not end within %g s; its engines are restarted by who comes next", limit_s)

    async def _govern(self) -> None:
        """Have the pool and evals follow the run; returns when it has ended and nothing is left to do."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            self._metrics.show(self._pool)
            state = self._watcher.state
            if state is None:
                continue
            self._pool.note(state)
            await self.coordinator.end_displaced()
            wants = self.evals.wants(state)
            self._metrics.holding.set(wants.hold)
            self._demand.want(wants, state)
            if state.ended and self.evals.idle and self.coordinator.current is None and wants == Wants():
                log.info("run %s has ended, and so have its evals", self._run)
                return

    def _is_displaced(self, attempt_id: str) -> bool:
        """Whether the run left an attempt that was its current one. Asks nobody: attempts never come back."""
        known = self._known_attempt
        return attempt_id != known.attempt_id or self._heard_attempt > known.number

    @property
    def _heard_attempt(self) -> int:
        state = self._watcher.state
        return 0 if state is None else state.attempt

    async def _attempt(self, claimed: str) -> CurrentAttempt:
        """The run's attempt. Asked for unless `claimed` was it already and no other attempt was heard of."""
        known = self._known_attempt
        if (known.number, known.attempt_id) == (self._heard_attempt, claimed):
            return known
        try:
            async with asyncio.timeout(LOOK_UP_S):
                run = await self._server.call(self._server.calls.get_run, self._run)
        except (DataServerError, TimeoutError) as error:
            log.warning("whether attempt %s is the run's cannot be told: %s", claimed, error or "no answer")
            return CurrentAttempt()
        if run.attempt is None:
            return CurrentAttempt()
        self._known_attempt = CurrentAttempt(number=run.attempt.number, attempt_id=run.attempt.attempt_id)
        return self._known_attempt
