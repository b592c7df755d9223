"""A whole run against a model of the rule: weights move exactly when evals will use them.

A version is synced if it was asked for (the start, every fifth, the last), or if an eval was in flight when its step
was sealed. Time is warped: steps of 10 s, evals of seconds or minutes.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from ledgerlab import FakeLedger, NearServer
from orchlab import ATTEMPT, ModelEngine, Wire, checksum_of, request, sync_id, warped
from prometheus_client import CollectorRegistry

from dataserver.errors import UnavailableError
from dataserver.listening import CalleeConfig
from dataserver.weight_sync import SyncOutcome, SyncState, WeightSync
from orchestrator.config import OrchestratorConfig
from orchestrator.lease import Lease
from orchestrator.metrics import Metrics
from orchestrator.pool import Pool
from orchestrator.reign import Reign
from orchestrator.trainer_calls import TrainerCalls
from orchestrator.transfers.values import Ready
from orchestrator.wants import Wants

STEPS = 10
EVERY = 5
STEP_S = 10.0
ACK_S = 1.0  # from a handover to the next seal

CONFIG = OrchestratorConfig.model_validate(
    {
        "run": {"name": "chat"},
        "engines": [{"name": "one", "url": "http://one"}],
        "weights": {"transport": "gloo"},
    }
)


class RunLedger(FakeLedger):
    """Knows the run's attempt, too."""

    def get_run(self, run: str) -> Any:
        attempt_id = ATTEMPT if self.attempt == 1 else f"{self.attempt:032}"
        return SimpleNamespace(attempt=SimpleNamespace(number=self.attempt, attempt_id=attempt_id))


class TimedEvals:
    """One eval at a time, of `duration_s`, at every due version or the earliest after it."""

    def __init__(self, world: "World", duration_s: float) -> None:
        self.world = world
        self.duration_s = duration_s
        self.dues = {0, *range(EVERY, STEPS + 1, EVERY)}
        self.running: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        return self.running is None and not self.dues

    def wants(self, state: SyncState) -> Wants:
        newest = self.world.pool.newest
        if newest is not None and self.running is None and any(due <= newest.number for due in self.dues):
            self.dues = {due for due in self.dues if due > newest.number}
            self.world.measured.append(newest.number)
            self.running = asyncio.ensure_future(self._measure())
        missed = any(due <= state.sealed_step for due in self.dues)
        hold = not state.ended and (self.running is not None or (missed and newest is not None))
        return Wants(versions=frozenset(due for due in self.dues if due > state.sealed_step or due == 0), hold=hold)

    async def _measure(self) -> None:
        begin = self.world.ledger.now
        async with self.world.pool.lend():
            await asyncio.sleep(self.duration_s)
        self.world.flights.append((begin, self.world.ledger.now))
        self.running = None
        self.world.wake()

    async def close(self) -> None:
        if self.running is not None:
            self.running.cancel()


class World:
    """A ledger, an engine, an orchestrator with the lease, and a trainer."""

    def __init__(self, duration_s: float) -> None:
        self.wire = Wire()
        self.ledger = RunLedger(max_steps=STEPS)
        self.engine = ModelEngine("one", self.wire)
        self.pool = Pool([self.engine], changed=self.wake)  # type: ignore[list-item]
        self.flights: list[tuple[float, float]] = []
        self.measured: list[int] = []
        self.seals: dict[int, float] = {}
        self.watcher = SimpleNamespace(state=None)
        self.server = NearServer(self.ledger)
        self.lease = self.lease_of("first")
        self.evals = TimedEvals(self, duration_s)
        self.reign: Reign | None = None
        self.ending = asyncio.Event()
        self.ledger.changed = self._hear

    def lease_of(self, holder: str) -> Lease:
        clock = asyncio.get_running_loop().time
        return Lease(self.server, run="chat", holder=holder, address=f"{holder}:1", ttl_s=15, clock=clock)

    def wake(self) -> None:
        reign = getattr(self, "reign", None)
        if reign is not None:
            reign.wake()

    def _hear(self, state: SyncState) -> None:
        self.watcher.state = state
        self.wake()

    async def orchestrate(self) -> bool:
        epoch = await self.lease.take()
        self._hear(self.ledger.sync_state("chat"))
        self.reign = Reign(
            CONFIG,
            epoch=epoch,
            server=self.server,
            watcher=self.watcher,  # type: ignore[arg-type]
            pool=self.pool,
            lease=self.lease,
            metrics=Metrics(CollectorRegistry()),
            trainer=TrainerCalls(CalleeConfig()),
            report=self._report,
            evals=lambda _changed: self.evals,
        )
        return await self.reign.run(self.ending, 20)

    def _report(self, sync: WeightSync) -> None:
        self.ledger.report_sync("chat", sync)

    async def train(self) -> None:
        for number in range(STEPS + 1):
            orchestrator = self.ledger.stamp(number)
            self.seals[number] = self.ledger.now
            await asyncio.sleep(STEP_S if number else 0)
            if orchestrator is not None:
                await self._hand_over(number, orchestrator.epoch)
            self.ledger.ack(number)
            await asyncio.sleep(ACK_S)
        self.ledger.ended = True
        self._hear(self.ledger.sync_state("chat"))

    async def _hand_over(self, number: int, epoch: int) -> None:
        if self.reign is None:
            return
        answer = await self.reign.coordinator.prepare(request(number, epoch=epoch))
        if isinstance(answer, Ready):
            self.wire.of(sync_id(number)).set()
            await self.reign.coordinator.commit(sync_id(number), checksum_of(sync_id(number)))

    def expected(self) -> set[int]:
        """The rule: what was asked for, and what was sealed while an eval was in flight."""
        asked = {0, *range(EVERY, STEPS + 1, EVERY)}
        flying = {
            number
            for number, sealed in self.seals.items()
            if any(begin + 0.1 < sealed < end for begin, end in self.flights)
        }
        return asked | flying


@pytest.mark.parametrize(
    ("duration_s", "synced"),
    [
        (0.5, {0, 5, 10}),
        (3, {0, 1, 5, 6, 10}),
        (15, {0, 1, 2, 5, 6, 7, 10}),
        (25, {0, 1, 2, 3, 5, 6, 7, 8, 10}),
        (55, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
        (500, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
    ],
)
def test_weights_move_when_an_eval_uses_them_and_on_no_idle_step(duration_s: float, synced: set[int]) -> None:
    async def main() -> None:
        world = World(duration_s)
        orchestrating = asyncio.ensure_future(world.orchestrate())
        await asyncio.sleep(1)
        await world.train()
        assert await orchestrating
        landed = set(world.ledger.landed)
        assert landed == world.expected()
        assert landed == synced
        assert world.measured[-1] == STEPS
        assert world.engine.breaches == []
        assert world.ledger.holds == {}

    warped(main())


def test_training_goes_on_without_an_orchestrator_and_one_that_comes_late_takes_part() -> None:
    async def main() -> None:
        world = World(3)
        training = asyncio.ensure_future(world.train())
        await asyncio.sleep(65)
        assert not world.ledger.landed
        orchestrating = asyncio.ensure_future(world.orchestrate())
        begin = world.seals[0]
        await training
        assert await orchestrating
        # No step waited: only what landed took time, tenths of a second each.
        assert world.ledger.now - begin < STEPS * (STEP_S + ACK_S) + 10
        assert set(world.ledger.landed) == {10}
        assert world.measured == [10]

    warped(main())


def test_an_orchestrator_that_dies_leaves_training_in_peace_and_its_successor_goes_on() -> None:
    async def main() -> None:
        world = World(3)
        dying = asyncio.ensure_future(world.orchestrate())
        await asyncio.sleep(1)
        training = asyncio.ensure_future(world.train())
        await asyncio.sleep(33)
        dying.cancel()
        await asyncio.wait([dying])
        world.reign = None
        world.lease = world.lease_of("second")
        orchestrating = asyncio.ensure_future(world.orchestrate())
        await training
        assert await orchestrating
        assert world.ledger.epoch == 2
        assert set(world.ledger.landed) == {0, 1, 5, 6, 10}
        assert world.engine.breaches == []

    warped(main())


def test_an_orchestrator_that_loses_the_data_server_calls_no_engine_beyond_its_lease() -> None:
    async def main() -> None:
        world = World(500)
        orchestrating = asyncio.ensure_future(world.orchestrate())
        await asyncio.sleep(1)
        training = asyncio.ensure_future(world.train())
        await asyncio.sleep(15)
        world.ledger.away = True
        lease = world.ledger.lease
        assert lease is not None
        assert await orchestrating is False
        assert world.ledger.now <= lease.expire_time
        assert world.evals.running is not None
        calls = len(world.engine.calls)
        await asyncio.sleep(40)
        assert len(world.engine.calls) == calls
        training.cancel()

    warped(main())


def refuse(run: str) -> Any:
    raise UnavailableError(f"run {run} is not to be had now")


@pytest.mark.parametrize("asked", [True, False])
def test_a_transfer_whose_trainer_was_displaced_ends_when_the_next_attempt_begins(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        world = World(3)
        orchestrating = asyncio.ensure_future(world.orchestrate())
        await asyncio.sleep(5)
        assert world.reign is not None
        assert isinstance(await world.reign.coordinator.prepare(request(1)), Ready)
        await asyncio.sleep(20)
        assert world.reign.coordinator.current is not None
        world.ledger.attempt = 2
        if not asked:
            monkeypatch.setattr(world.ledger, "get_run", refuse)
        world._hear(world.ledger.sync_state("chat"))
        await asyncio.sleep(5)
        assert world.reign.coordinator.current is None
        assert world.engine.restarts == 1
        assert [(sync.outcome, sync.engines) for sync in world.ledger.reports] == [(SyncOutcome.FAILED, ())]
        world.ending.set()
        await orchestrating

    warped(main())


def test_a_fault_while_governing_ends_the_orchestrator_with_that_fault() -> None:
    async def main() -> None:
        world = World(3)
        orchestrating = asyncio.ensure_future(world.orchestrate())
        await asyncio.sleep(1)

        def broken(_state: SyncState) -> Wants:
            raise RuntimeError("an eval's own fault")

        world.evals.wants = broken  # type: ignore[method-assign]
        world.wake()
        with pytest.raises(RuntimeError, match="an eval's own fault"):
            await orchestrating

    warped(main())


def test_nobody_calls_engines_while_evals_take_long_to_end() -> None:
    async def main() -> None:
        world = World(500)
        orchestrating = asyncio.ensure_future(world.orchestrate())
        await asyncio.sleep(1)
        closing = asyncio.Event()

        async def slow() -> None:
            closing.set()
            world.engine.paused = True  # the keeper would have it restarted
            await asyncio.sleep(60)

        world.evals.close = slow  # type: ignore[method-assign]
        world.ledger.away = True
        await closing.wait()
        assert await orchestrating is False
        assert world.engine.restarts == 0

    warped(main())
