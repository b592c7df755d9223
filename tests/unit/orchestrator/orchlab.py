"""Engines, trainers and a clock for tests of the orchestrator's core: no network, no waiting.

`WarpLoop` jumps to the next timer when nothing else is to do, so that deadlines of minutes pass at once.
`ModelEngine` is an engine as a state machine that knows at each moment whether it would serve a mix.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from dataserver.weight_buckets import TensorSpec
from dataserver.weight_sync import PolicyVersion, SyncState, WeightSync
from orchestrator.config import TransfersConfig
from orchestrator.engines.interface import EngineStatus, Transfer, Transport
from orchestrator.errors import EngineRefusedError, EngineUnavailableError, UpdateFailedError, WeightsMismatchError
from orchestrator.keeper import Keeper
from orchestrator.labels import sync_of
from orchestrator.pool import Pool
from orchestrator.transfers.coordinator import Coordinator
from orchestrator.transfers.values import CurrentAttempt, PrepareRequest

ATTEMPT = "a" * 32
TENSORS = (TensorSpec(name="w", dtype="float32", shape=(2, 2)),)


class WarpLoop(asyncio.SelectorEventLoop):
    """A loop whose time stands still while somebody runs, and jumps when all wait."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        # Of those that were cancelled some stand before the next one, for which the loop would really wait.
        next_s = min((timer.when() for timer in timers if not timer.cancelled()), default=None)
        if not self._ready and next_s is not None:  # type: ignore[attr-defined]
            self.now = max(self.now, next_s)
        super()._run_once()  # type: ignore[misc]


def warped(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end in a loop of its own."""
    with asyncio.Runner(loop_factory=WarpLoop) as runner:
        runner.run(main)


def checksum_of(sync_id: str) -> str:
    return sync_id[::-1]


@dataclass(eq=False)
class Wire:
    """What the trainer sends: the syncs that are sent whole, and those that it left."""

    sent: dict[str, asyncio.Event] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)

    def of(self, sync_id: str) -> asyncio.Event:
        return self.sent.setdefault(sync_id, asyncio.Event())

    def leave(self, sync_id: str) -> None:
        self.left.add(sync_id)
        self.of(sync_id).set()


Dice = Callable[[str], str]
"""What befalls a call: "" nothing, `before` or `after` its effect no answer comes, `refused`, `hang`."""


class ModelEngine:
    """An engine that writes down every moment in which it would have served a mix."""

    def __init__(self, name: str, wire: Wire, dice: Dice = lambda _call: "", *, jitter: random.Random | None = None):
        self.name = self.url = name
        self.wire = wire
        self.dice = dice
        self.jitter = jitter
        self.calls: list[str] = []
        self.breaches: list[str] = []
        self.restarts = 0
        self.tensors = TENSORS
        self._start()

    def _start(self) -> None:
        self.alive = True
        self.died = asyncio.Event()
        self.whole: str | None = "start"  # the sync whose weights it holds, None for a mix
        self.paused = self.open = False
        self.label: str | None = None

    def kill(self) -> None:
        """Its process ends; whoever waits for it gets no answer."""
        self.alive = False
        self.died.set()

    def check(self) -> None:
        """It serves: what?"""
        if self.paused or not self.alive:
            return
        if self.open or self.whole is None:
            self.breaches.append(f"serves a mix after {self.calls[-4:]}")
        elif (sync_of(self.label) or "start") != self.whole:
            self.breaches.append(f"labelled {self.label}, serves {self.whole}")

    async def _call(self, call: str, effect: Callable[[], None]) -> None:
        life = self.died
        self.calls.append(call)
        await self._tarry()
        befalls = "before" if life.is_set() else self.dice(call)
        if befalls == "hang":
            await life.wait()
            befalls = "before"
        if befalls == "refused":
            raise EngineRefusedError(self.name, call, "no")
        if befalls == "before":
            raise EngineUnavailableError(self.name, call, "no answer")
        effect()
        self.check()
        await self._tarry()
        if befalls == "after":
            raise EngineUnavailableError(self.name, call, "the answer is lost")

    async def _tarry(self) -> None:
        if self.jitter is not None:
            await asyncio.sleep(self.jitter.choice([0, 0, 0.01, 0.1]))

    async def status(self) -> EngineStatus:
        await self._tarry()
        if not self.alive:
            return EngineStatus(healthy=False, detail="dead")
        return EngineStatus(healthy=True, paused=self.paused, update_open=self.open, label=self.label, workers=1)

    async def abort_requests(self) -> int:
        def effect() -> None:
            if self.paused:
                self.breaches.append("aborted while paused")

        await self._call("abort", effect)
        return 0

    async def compare(self, transfer: Transfer) -> None:
        if transfer.tensors != self.tensors:
            raise WeightsMismatchError(self.name, "compare", "w is of another shape")
        await self._call("compare", lambda: None)

    async def pause(self) -> None:
        if self.paused:
            raise EngineRefusedError(self.name, "pause", "it is paused already")
        await self._call("pause", lambda: setattr(self, "paused", True))

    async def resume(self) -> None:
        await self._call("resume", lambda: setattr(self, "paused", False))

    async def begin_update(self, transfer: Transfer) -> None:
        if transfer.tensors != self.tensors:
            raise WeightsMismatchError(self.name, "begin_update", "w is of another shape")

        def effect() -> None:
            if not self.paused:
                raise EngineRefusedError(self.name, "begin", "it is not paused")
            if self.open:
                self.breaches.append("update begun while one is open")
            self.open = True

        await self._failing_update("begin", effect)

    async def receive(self, transfer: Transfer) -> str:
        def begin() -> None:
            if not self.open:
                raise UpdateFailedError(self.name, "receive", "no update is open")
            self.whole = None

        await self._failing_update("load", begin)
        ends = [asyncio.ensure_future(event.wait()) for event in (self.wire.of(transfer.sync_id), self.died)]
        try:
            await asyncio.wait(ends, timeout=transfer.deadline_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        if transfer.sync_id in self.wire.left or not self.wire.of(transfer.sync_id).is_set():
            raise UpdateFailedError(self.name, "receive", "the trainer left")

        def effect() -> None:
            self.whole = transfer.sync_id

        await self._failing_update("receive", effect)
        return checksum_of(transfer.sync_id)

    async def finish_update(self, label: str) -> None:
        def effect() -> None:
            if not self.open:
                raise UpdateFailedError(self.name, "finish", "no update is open")
            self.open, self.label = False, label

        await self._failing_update("finish", effect)

    async def _failing_update(self, call: str, effect: Callable[[], None]) -> None:
        try:
            await self._call(call, effect)
        except EngineUnavailableError as error:
            raise UpdateFailedError(self.name, call, str(error)) from error

    async def reset_prefix_cache(self) -> None:
        await self._call("reset", lambda: None)

    async def restart(self) -> None:
        await self._tarry()
        self.restarts += 1
        self.kill()
        self._start()


class Stage:
    """A pool, its keeper and a coordinator of epoch 1, over model engines."""

    def __init__(self, *engines: ModelEngine, transport: Transport = Transport.GLOO, **weights: Any) -> None:
        self.engines = engines
        self.reports: list[WeightSync] = []
        self.told: list[tuple[str, str]] = []
        self.attempt, self.number = ATTEMPT, 1
        self.pool = Pool(engines)  # type: ignore[arg-type]
        self.keeper = Keeper(self.pool, every_s=2)
        self.config = TransfersConfig(transport=transport, **weights)
        self.coordinator = self.lead(epoch=1)

    def lead(self, epoch: int) -> Coordinator:
        return Coordinator(
            run="chat",
            epoch=epoch,
            pool=self.pool,
            config=self.config,
            attempt=self._current,
            displaced=lambda attempt_id: attempt_id != self.attempt,
            restart=self.keeper.restart,
            tell_trainer=self._tell,
            report=self.reports.append,
        )

    async def _current(self, _claimed: str) -> CurrentAttempt:
        return CurrentAttempt(number=self.number, attempt_id=self.attempt)

    async def _tell(self, request: PrepareRequest, reason: str) -> None:
        self.told.append((request.sync_id, reason))
        for engine in self.engines:
            engine.wire.leave(request.sync_id)

    async def seen(self) -> None:
        """All engines were looked at."""
        for member in self.pool.members:
            await self.keeper.look(member)


def request(number: int, **fields: Any) -> PrepareRequest:
    """A prepare of `number`; its sync id is the number's."""
    return PrepareRequest(
        **{
            "run": "chat",
            "version": PolicyVersion(attempt=1, number=number),
            "attempt_id": ATTEMPT,
            "sync_id": sync_id(number),
            "epoch": 1,
            "transport": Transport.GLOO,
            "tensors": TENSORS,
            "bucket_bytes": 1 << 20,
            "trainer_address": "127.0.0.1:1",
            "rendezvous": "127.0.0.1:2",
            "directory": "",
        }
        | fields
    )


def sync_id(number: int) -> str:
    return UUID(int=number).hex


def run_state(**fields: Any) -> SyncState:
    """A run of which nothing is sealed yet, in its first attempt."""
    return SyncState(
        **{
            "run": "chat",
            "attempt": 1,
            "sealed_step": 0,
            "consumed_step": 0,
            "requested": (),
            "last_requested": False,
            "last_sealed": False,
            "ended": False,
            "shutdown_deadline": None,
            "holds": (),
            "lease": None,
            "landed": None,
            "syncs": (),
            "max_steps": None,
        }
        | fields
    )
