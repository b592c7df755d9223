"""One transfer, from its prepare to its end.

    group   PREPARING ──all paused, all open──> SENDING ──commit──> FINISHING ──────────────> OVER
    files   PREPARING ──compared, they serve──> SENDING ──commit──> FINISHING: pause, load ─> OVER
                │ no engine got ready,             │ abort, expiry,    │ engine by engine: landed, or not
                │ abort, deadline                  │ an engine's fault │
                └──────────────> OVER <────────────┴───────────────────┘

One task drives it; calls only leave a word with it, so that a repeated or late one changes nothing:

- PREPARING ends within `prepare_timeout_s`, whatever engines do. Engines that fail alone are left out.
- SENDING ends with the commit, an abort, `transfer_timeout_s` later, or the first fault of an engine in a group:
  the group is broken, and the trainer inside it is told. Files need no group: engines serve until all are written, so a
  trainer that dies leaves nobody paused.
- FINISHING ends within `finish_timeout_s`, and with files `prepare_timeout_s` before it, to pause. An abort comes too
  late there: engines are deciding.
- OVER: every engine serves the old version, or the new one, or is being restarted. How it ended is reported once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from dataserver.weight_sync import WeightSync
from orchestrator.config import TransfersConfig
from orchestrator.engines.interface import Transfer as EngineTransfer
from orchestrator.engines.interface import Transport
from orchestrator.transfers.answers import announcements, ready_answer, refusal, report_of
from orchestrator.transfers.party import Party, together
from orchestrator.transfers.values import EngineOutcome, PrepareRequest, Ready, RefusalReason, Refused

Announced = Mapping[Party, EngineTransfer]


class Phase(StrEnum):
    """Where a transfer is; the module's docstring draws the ways."""

    PREPARING = "preparing"
    SENDING = "sending"
    FINISHING = "finishing"
    OVER = "over"


class Transfer:
    """Drives one transfer. Make it inside an event loop, then `drive` it in a task of its own.

    `attempt`: who sends. `displaced`: whether that is no longer the run's. `tell_trainer` makes the trainer leave the
    transfer; `report` says how it ended.
    """

    def __init__(
        self,
        request: PrepareRequest,
        parties: Sequence[Party],
        config: TransfersConfig,
        *,
        attempt: int,
        displaced: Callable[[], bool],
        tell_trainer: Callable[[PrepareRequest, str], Awaitable[None]],
        report: Callable[[WeightSync], None],
    ) -> None:
        self.request = request
        self.phase = Phase.PREPARING
        self._parties = self._taking_part = tuple(parties)
        self._config = config
        self._attempt = attempt
        self._displaced = displaced
        self._tell_trainer = tell_trainer
        self._report = report
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._begin = loop.time()
        self._answer: asyncio.Future[Ready | Refused] = loop.create_future()
        self._commit: asyncio.Future[str] = loop.create_future()
        self._abort: asyncio.Future[str] = loop.create_future()
        self._over = asyncio.Event()

    # What calls do

    async def answer(self) -> Ready | Refused:
        """What the prepare is answered, however often it is asked."""
        return await asyncio.shield(self._answer)

    async def commit(self, checksum: str) -> tuple[EngineOutcome, ...]:
        """All ranks sent all. What became of it, once every engine's fate is known."""
        if not self._commit.done():
            self._commit.set_result(checksum)
        await self._over.wait()
        return tuple(
            EngineOutcome(engine=party.name, landed=party.landed, detail=party.fault) for party in self._parties
        )

    async def abort(self, reason: str) -> None:
        """Give it up, unless it is being finished; returns when it is over."""
        if not self._abort.done():
            self._abort.set_result(reason)
        await self._over.wait()

    # What its task does

    async def drive(self) -> None:
        """From the prepare to the end. Once cancelled it calls no engine, and leaves them to whoever comes next."""
        try:
            async with asyncio.TaskGroup() as ways:
                announced = await (self._open(ways, self._parties) if self._in_group else self._compare(ways))
                self._reply(announced)
                await self._move_weights(ways, announced)
                self._keep(ways, {})
        except Exception as error:
            await self._tear(f"a fault of the orchestrator's own: {error!r}")
            raise
        finally:
            self._end()

    async def _compare(self, ways: asyncio.TaskGroup) -> Announced:
        """Which engines have a model of such weights, by what they are transfered; they serve on."""
        announced = announcements(self.request, self._parties, self._config.finish_timeout_s)
        comparing = {party: party.compare(transfer) for party, transfer in announced.items()}
        await together("comparing", comparing, self._config.prepare_timeout_s, self._abort)
        return self._keep(ways, announced)

    async def _open(self, ways: asyncio.TaskGroup, parties: Sequence[Party]) -> Announced:
        """Pause and open the update; returns who takes part, by what was announced to it."""
        config = self._config
        for party in parties:
            party.take()
        # Half of the time each, so that an engine that hangs leaves some to the others.
        limit_s = config.prepare_timeout_s / 2
        stop = None if self.phase is Phase.FINISHING else self._abort
        taken = [party for party in parties if not party.fault]
        pausing = {party: party.pause(wait_for_answers=config.wait_for_answers) for party in taken}
        await together("pausing", pausing, limit_s, stop)
        paused = [party for party in parties if not party.fault]
        loading_s = config.transfer_timeout_s if self._in_group else config.finish_timeout_s
        announced = announcements(self.request, paused, loading_s)
        opening = {party: party.begin(transfer) for party, transfer in announced.items()}
        await together("opening the update", opening, limit_s, stop)
        if self._in_group and any(party.fault for party in announced):
            self._give_up("another engine of the group did not open its update")  # its ranks are given out
        return self._keep(ways, announced)

    def _reply(self, announced: Announced) -> None:
        """Answer the prepare."""
        if announced:
            self.phase = Phase.SENDING
            self._answer.set_result(ready_answer(announced, self._config.transfer_timeout_s))
        else:
            self._answer.set_result(refusal(self._parties, self._aborted))

    async def _move_weights(self, ways: asyncio.TaskGroup, announced: Announced) -> None:
        """Receive, in a group while the trainer sends, then finish engine by engine; or give it up."""
        if not announced:
            return
        receiving = self._receive(announced) if self._in_group else {}
        try:
            fault = await self._sent(receiving)
            if fault:
                self._give_up(fault)
                if not self._abort.done():
                    await self._tell_trainer(self.request, fault)
                return
            self.phase = Phase.FINISHING
            if not self._in_group:
                receiving = self._receive(await self._open(ways, tuple(announced)))
            finishing = {party: self._finish(party, received) for party, received in receiving.items()}
            await together("finishing", finishing, self._config.finish_timeout_s, None)
        finally:
            for received in receiving.values():
                received.cancel()
            if receiving:
                await asyncio.wait(receiving.values())

    def _receive(self, announced: Announced) -> "dict[Party, asyncio.Future[None]]":
        return {party: asyncio.ensure_future(party.receive(transfer)) for party, transfer in announced.items()}

    def _keep(self, ways: asyncio.TaskGroup, announced: Announced) -> Announced:
        """Those without a fault, unless all is given up; the others go their ways."""
        if self._aborted is not None and self.phase is Phase.PREPARING:
            self._give_up(f"aborted: {self._aborted}")
        staying = {party: transfer for party, transfer in announced.items() if not party.fault}
        for party in self._taking_part:
            if party not in staying:
                ways.create_task(party.settle())
        self._taking_part = tuple(staying)
        return staying

    async def _sent(self, receiving: "Mapping[Party, asyncio.Future[None]]") -> str:
        """Wait for the commit; returns why there will be none, or ""."""
        deadline = self._now() + self._config.transfer_timeout_s
        pending = set(receiving.values())
        while not self._abort.done():
            faults = [party.fault for party in receiving if party.fault]
            if faults and (self._in_group or len(faults) == len(receiving)):
                return faults[0]
            if self._commit.done():
                return "another attempt of the run began" if self._displaced() else ""
            left_s = deadline - self._now()
            if left_s <= 0:
                return f"no commit came within {self._config.transfer_timeout_s:g} s: the prepare expired"
            words: set[asyncio.Future[Any]] = {*pending, self._commit, self._abort}
            await asyncio.wait(words, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            for received in pending:
                if received.done():
                    received.result()
            pending = {received for received in pending if not received.done()}
        return f"aborted: {self._abort.result()}"

    async def _finish(self, party: Party, received: "asyncio.Future[None]") -> None:
        await received
        request = self.request
        await party.finish(request.version, request.sync_id, self._commit.result(), attempt=self._attempt)

    @property
    def _aborted(self) -> str | None:
        return self._abort.result() if self._abort.done() else None

    @property
    def _in_group(self) -> bool:
        return self.request.transport is not Transport.FILESYSTEM

    def _give_up(self, why: str) -> None:
        for party in self._parties:
            party.give_up(why)

    async def _tear(self, why: str) -> None:
        """After a fault that nobody foresaw, nothing is known of the engines that did not land."""
        self._give_up(why)
        for party in self._parties:
            party.tear()
        if self.phase is Phase.SENDING and not self._abort.done():
            await self._tell_trainer(self.request, why)

    def _end(self) -> None:
        """Tell everybody who asked, and the ledger."""
        self._give_up_the_rest()
        was_ready, self.phase = self.phase is not Phase.PREPARING, Phase.OVER
        if not self._answer.done():
            self._answer.set_result(Refused(reason=RefusalReason.STALE, detail="the orchestrator's lease ended"))
        self._over.set()
        if was_ready:
            self._report(report_of(self.request, self._parties, self._now() - self._begin))

    def _give_up_the_rest(self) -> None:
        for party in self._parties:
            if not party.landed:
                party.give_up("the orchestrator's lease ended")
