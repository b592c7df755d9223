"""Random trainers, engines and orchestrators that fail, repeat, delay and die at random: no mix is ever served.

Every interleaving is named by its seed. What must hold in each: no engine breaches its order or serves a mix; whoever
borrowed an engine gets the version that the loan names; every call ends; in the end, when nothing fails any more, one
more transfer lands everywhere.
"""

import asyncio
import random

import pytest
from orchlab import ModelEngine, Stage, Wire, checksum_of, request, sync_id, warped

from dataserver.errors import PreconditionError
from dataserver.weight_sync import PolicyVersion
from orchestrator.engines.interface import Transport
from orchestrator.labels import sync_of
from orchestrator.transfers.values import Ready

SYNCS = 8
FAULT_SHARE = 0.06


class World:
    """Two engines, an orchestrator and a trainer under one source of chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.faults = True
        self.wire = Wire()
        self.engines = [ModelEngine(name, self.wire, self._dice, jitter=self.chance) for name in ("one", "two")]
        self.transport = self.chance.choice([Transport.GLOO, Transport.FILESYSTEM])
        self.stage = Stage(*self.engines, transport=self.transport, transfer_timeout_s=20)
        self.epoch = 1
        self.keeping = asyncio.ensure_future(self.stage.keeper.run())
        self.wrong: list[str] = []
        self.versions: dict[int, str] = {}

    def _dice(self, _call: str) -> str:
        if not self.faults or self.chance.random() > FAULT_SHARE:
            return ""
        return self.chance.choice(["before", "after", "after", "refused", "hang"])

    async def tarry(self, most_s: float = 1.0) -> None:
        await asyncio.sleep(self.chance.random() * most_s)

    async def sync(self, number: int) -> bool:
        """One handover, with calls that are repeated, delayed, lost or left out; whether it landed on all engines."""
        self.versions[number] = sync_id(number)
        ask = request(number, epoch=self.epoch, transport=self.transport)
        copies = [asyncio.ensure_future(self._late(self.stage.coordinator.prepare, ask)) for _ in range(self._copies())]
        answer = await self.stage.coordinator.prepare(ask)
        if not isinstance(answer, Ready):
            self.wire.leave(sync_id(number))
            await asyncio.gather(*copies)
            return False
        await self.tarry()
        if self.faults and self.chance.random() < 0.15:
            self.wire.leave(sync_id(number))  # the trainer dies
            await asyncio.gather(*copies)
            return False
        self.wire.of(sync_id(number)).set()
        calls = [self._late(self._commit, number) for _ in range(self._copies())]
        if self.faults and self.chance.random() < 0.3:
            calls.append(self._late(self.stage.coordinator.abort, sync_id(number), "late"))
        _, outcomes, *_ = await asyncio.gather(asyncio.gather(*copies), self._commit(number), *calls)
        return bool(outcomes) and all(outcome.landed for outcome in outcomes) and len(outcomes) == 2

    async def _commit(self, number: int):
        try:
            return await self.stage.coordinator.commit(sync_id(number), checksum_of(sync_id(number)))
        except PreconditionError:
            return ()

    def _copies(self) -> int:
        return self.chance.choice([0, 0, 1, 2]) if self.faults else 0

    async def _late(self, call, *arguments) -> None:
        await self.tarry(3.0)
        await call(*arguments)

    async def succeed(self) -> None:
        """The orchestrator dies, and another takes over."""
        await self.stage.coordinator.close()
        self.keeping.cancel()
        await asyncio.wait([self.keeping])
        self.stage.pool.forget()
        self.epoch += 1
        self.stage.coordinator = self.stage.lead(self.epoch)
        self.keeping = asyncio.ensure_future(self.stage.keeper.run())

    async def disturb(self) -> None:
        while True:
            await self.tarry(12.0)
            if self.chance.random() < 0.3:
                await self.succeed()
            else:
                self.chance.choice(self.engines).kill()
                await self.tarry(3.0)

    async def revive(self) -> None:
        """Whoever runs the engines starts those that died; all they know is gone."""
        while True:
            await self.tarry(10.0)
            for engine in self.engines:
                if not engine.alive:
                    await engine.restart()

    async def probe(self) -> None:
        """An eval that borrows engines and looks what they serve."""
        while True:
            pin = self.chance.random() < 0.3 and self.stage.pool.newest is not None
            async with self.stage.pool.lend(self.stage.pool.newest if pin else None, pin=pin) as loan:
                for _ in range(3):
                    self._look(loan, pin=pin)
                    await self.tarry()
            await self.tarry()

    def _look(self, loan, *, pin: bool) -> None:
        engine = loan.engine
        engine.check()
        if not engine.alive or engine.paused or engine.label is None:
            return
        number = int(sync_of(engine.label) or "0", 16)
        if pin and number != loan.version.number:
            self.wrong.append(f"pinned to {loan.version}, got {engine.label}")
        if not pin and number < loan.version.number:
            self.wrong.append(f"lent at {loan.version}, got {engine.label}")


async def explore(seed: int) -> None:
    world = World(seed)
    others = [asyncio.ensure_future(each()) for each in (world.disturb, world.revive, world.probe, world.probe)]
    for number in range(1, SYNCS + 1):
        await world.sync(number)
        await world.tarry(5.0)
    world.faults = False
    for task in others:
        task.cancel()
    await asyncio.wait(others)
    await world.succeed()
    for engine in world.engines:
        await engine.restart()
    # Two looks at each engine, restarts and all.
    await asyncio.sleep(60)
    assert await world.sync(SYNCS + 1), [str(member) for member in world.stage.pool.members]
    breaches = [f"{engine.name}: {breach}" for engine in world.engines for breach in engine.breaches]
    assert not breaches + world.wrong
    assert world.stage.pool.newest == PolicyVersion(attempt=1, number=SYNCS + 1)
    assert all(member.loans == member.pins == 0 for member in world.stage.pool.members)
    world.keeping.cancel()


def explore_all(seeds: range) -> None:
    for seed in seeds:
        try:
            warped(asyncio.wait_for(explore(seed), 5_000))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_no_interleaving_serves_a_mix_or_ends_stuck() -> None:
    explore_all(range(60))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_no_interleaving_of_a_thousand_serves_a_mix_or_ends_stuck(block: int) -> None:
    explore_all(range(60 + 100 * block, 160 + 100 * block))
