"""One transfer, from its prepare to its end.

    PREPARING ──all paused, all open──> SENDING ──commit──> FINISHING ──> OVER
        │ no engine got ready,             │ abort, expiry,    │ engine by engine: landed, or not
        │ abort, deadline                  │ an engine's fault │
        └──────────────> OVER <────────────┴───────────────────┘

One task drives it; calls only leave a word with it, so that a repeated or late one changes nothing:

- PREPARING ends within `prepare_timeout_s`, whatever engines do. Engines that fail alone are left out.
- SENDING ends with the commit, an abort, `transfer_timeout_s` later, or the first fault of an engine in a group:
  the group is broken, and the trainer inside it is told. Files need no group; there the others go on.
- FINISHING ends within `finish_timeout_s`. An abort comes too late there: engines are deciding.
- OVER: every engine serves the old version, or the new one, or is being restarted. How it ended is reported once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from dataserver.weight_sync import SyncOutcome, WeightSync
from orchestrator.config import WeightsConfig
from orchestrator.engines.interface import Transfer as EngineTransfer
from orchestrator.engines.interface import Transport
from orchestrator.transfers.offers import offers_for, ready_answer, refusal
from orchestrator.transfers.party import Party, together
from orchestrator.transfers.values import EngineOutcome, PrepareRequest, Ready, RefusalReason, Refused


class Phase(StrEnum):
    """Where a transfer is; the module's docstring draws the ways."""

    PREPARING = "preparing"
    SENDING = "sending"
    FINISHING = "finishing"
    OVER = "over"


class Transfer:
    """Drives one transfer. Make it inside an event loop, then `drive` it in a task of its own.

    `displaced`: whether its attempt is no longer the run's. `tell_trainer` makes the trainer leave the transfer;
    `report` says how it ended.
    """

    def __init__(
        self,
        request: PrepareRequest,
        parties: Sequence[Party],
        config: WeightsConfig,
        *,
        displaced: Callable[[], bool],
        tell_trainer: Callable[[PrepareRequest, str], Awaitable[None]],
        report: Callable[[WeightSync], None],
    ) -> None:
        self.request = request
        self.phase = Phase.PREPARING
        self._parties = tuple(parties)
        self._config = config
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
            offers = await self._get_ready()
            left_out = [party for party in self._parties if party not in offers]
            async with asyncio.TaskGroup() as ways:
                for party in left_out:
                    ways.create_task(party.settle())
                await self._move_weights(offers)
            async with asyncio.TaskGroup() as ways:
                for party in offers:
                    ways.create_task(party.settle())
        except Exception as error:
            await self._tear(f"a fault of the orchestrator's own: {error!r}")
            raise
        finally:
            self._end()

    async def _get_ready(self) -> dict[Party, EngineTransfer]:
        """Pause, open, answer; returns who takes part, by what it was offered."""
        # Half of the time each, so that an engine that hangs leaves some to the others.
        limit_s = self._config.prepare_timeout_s / 2
        pausing = {party: party.pause(wait_for_answers=self._config.wait_for_answers) for party in self._parties}
        await together("pausing", pausing, limit_s, self._abort)
        paused = [party for party in self._parties if not party.fault]
        offers = offers_for(self.request, paused, self._config.transfer_timeout_s)
        opening = {party: party.begin(offer) for party, offer in offers.items()}
        await together("opening the update", opening, limit_s, self._abort)
        if self._in_group and any(party.fault for party in offers):
            self._give_up("another engine of the group did not open its update")  # its ranks are given out
        aborted = self._abort.result() if self._abort.done() else None
        if aborted is not None:
            self._give_up(f"aborted: {aborted}")
        ready = {party: offer for party, offer in offers.items() if not party.fault}
        if ready:
            self.phase = Phase.SENDING
            self._answer.set_result(ready_answer(ready, self._config.transfer_timeout_s))
        else:
            self._answer.set_result(refusal(self._parties, aborted))
        return ready

    async def _move_weights(self, offers: Mapping[Party, EngineTransfer]) -> None:
        """Receive while the trainer sends, then finish engine by engine; or give it up."""
        if not offers:
            return
        receiving = {party: asyncio.ensure_future(party.receive(offer)) for party, offer in offers.items()}
        try:
            fault = await self._sent(receiving)
            if fault:
                self._give_up(fault)
                if not self._abort.done():
                    await self._tell_trainer(self.request, fault)
                return
            self.phase = Phase.FINISHING
            finishing = {party: self._finish(party, received) for party, received in receiving.items()}
            await together("finishing", finishing, self._config.finish_timeout_s, None)
        finally:
            for received in receiving.values():
                received.cancel()
            await asyncio.wait(receiving.values())

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
        await party.finish(self.request.version, self.request.sync_id, self._commit.result())

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
            landed = tuple(party.name for party in self._parties if party.landed)
            self._report(
                WeightSync(
                    sync_id=self.request.sync_id,
                    version=self.request.version,
                    outcome=SyncOutcome.LANDED if landed else SyncOutcome.FAILED,
                    seconds=self._now() - self._begin,
                    engines=landed,
                    detail="; ".join(f"{party.name}: {party.fault}" for party in self._parties if party.fault),
                )
            )

    def _give_up_the_rest(self) -> None:
        for party in self._parties:
            if not party.landed:
                party.give_up("the orchestrator's lease ended")
