"""One engine in one transfer: the order of calls, and the way out of each place in it.

    FREE ──take──> TAKEN ──pause──> PAUSED ──begin_update──> OPEN ──receive──> WHOLE ──finish, reset, resume──> LANDED
                     │                │                       │                 │ checksum
                     └────────────────┴─ resume: as it was    └─────────────────┴─ restart: it may hold a mix

A FREE engine serves its version to whoever asks. One that was taken is resumed when its update finished or never began;
any other is restarted, and serves nothing before it is synced in full.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from enum import StrEnum
from typing import Any

from dataserver.weight_sync import PolicyVersion
from orchestrator.engines.interface import Transfer
from orchestrator.errors import EngineError, EngineRefusedError, WeightsMismatchError
from orchestrator.labels import label_of
from orchestrator.members import Member, MemberState
from orchestrator.pool import Pool

# Resuming takes milliseconds; an engine that does not answer so long is restarted.
RESUME_S = 10.0


class Place(StrEnum):
    """How far an engine got; the module's docstring draws the way."""

    FREE = "free"
    TAKEN = "taken"
    PAUSED = "paused"
    OPEN = "open"
    WHOLE = "whole"
    LANDED = "landed"


class Party:
    """One engine in one transfer. Methods that may fail note the `fault` instead of raising it."""

    def __init__(self, pool: Pool, member: Member, restart: Callable[[Member, str], None]) -> None:
        self.member = member
        self.place = Place.FREE
        self.fault = ""
        self.mismatch = False
        self.checksum = ""
        self._pool = pool
        self._restart = restart

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.member.name

    async def compare(self, transfer: Transfer) -> None:
        """Compare what is announced with the engine's model, while it serves."""
        try:
            await self.member.engine.compare(transfer)
        except EngineError as error:
            self._fail(error)

    def take(self) -> None:
        """Have the engine for this transfer alone, if nobody pinned it and it is there."""
        if self._pool.take(self.member):
            self.place = Place.TAKEN
        else:
            self.fault = "an eval pinned it meanwhile" if self.member.pins else str(self.member)

    async def pause(self, *, wait_for_answers: bool) -> None:
        """Freeze what is in flight, or wait for it; first give up what nobody wants."""
        engine = self.member.engine
        try:
            if wait_for_answers:
                await self._pool.idle(self.member)
            if not self.member.loans:
                # Whoever asked is gone. After the pause it would be too late: that has crashed engines.
                await engine.abort_requests()
            # Also when the answer is lost, or the wait for it is given up; resuming twice does no harm.
            self.place = Place.PAUSED
            await engine.pause()
        except EngineRefusedError as error:
            # Somebody else paused it, or put it to sleep: it is not for a transfer to wake it.
            self.place = Place.TAKEN
            self._fail(error)
        except EngineError as error:
            self._fail(error)

    async def begin(self, transfer: Transfer) -> None:
        """Open the update. A refusal leaves the engine as it was."""
        # Also when the answer is lost, or the wait for it is given up.
        self.place = Place.OPEN
        try:
            await self.member.engine.begin_update(transfer)
        except EngineRefusedError as error:
            self.place = Place.PAUSED
            self._fail(error)
        except EngineError as error:
            self._fail(error)

    async def receive(self, transfer: Transfer) -> None:
        """Take what the trainer sends; ends when all is there, or with a fault."""
        try:
            self.checksum = await self.member.engine.receive(transfer)
        except EngineError as error:
            self._fail(error)
        else:
            self.place = Place.WHOLE

    async def finish(self, version: PolicyVersion, sync_id: str, checksum: str, *, attempt: int) -> None:
        """If the weights are what `attempt` sent: make them the engine's own, labelled, and let it go on with them."""
        engine = self.member.engine
        if self.fault:
            return
        if self.place is not Place.WHOLE:
            self.fault = "not all weights arrived in time"
        elif self.checksum != checksum:
            self.fault = f"the trainer sent weights of checksum {checksum}, and {self.checksum} arrived"
        if self.fault:
            return
        try:
            await engine.finish_update(label_of(version, sync_id))
            await engine.reset_prefix_cache()
            await engine.resume()
        except EngineError as error:
            self._fail(error)
        else:
            self.place = Place.LANDED
            # Only now: an engine that is nobody's and paused is restarted.
            self._pool.land(self.member, version, sync_id, attempt=attempt)

    async def settle(self) -> None:
        """Leave a transfer that is over: as it was, or to be restarted; those that landed have left already."""
        if self.place in {Place.FREE, Place.LANDED}:
            return
        if self.place is Place.PAUSED:
            try:
                async with asyncio.timeout(RESUME_S):
                    await self.member.engine.resume()
            except (EngineError, TimeoutError) as error:
                self._restart(self.member, f"{self.fault}; then it could not be resumed: {error or 'no answer'}")
                return
        if self.place in {Place.TAKEN, Place.PAUSED}:
            self._pool.untouched(self.member)
        else:
            self._restart(self.member, self.fault)

    def tear(self) -> None:
        """Have the engine restarted, unless it has left the transfer."""
        if self.member.state is MemberState.SYNCING:
            self._restart(self.member, self.fault)

    @property
    def landed(self) -> bool:
        """Whether it serves the new version now."""
        return self.place is Place.LANDED

    def give_up(self, why: str) -> None:
        """Note a fault of the whole transfer."""
        self.fault = self.fault or why

    def _fail(self, error: EngineError) -> None:
        self.fault = str(error)
        self.mismatch = isinstance(error, WeightsMismatchError)


async def together(
    what: str, steps: "Mapping[Party, Coroutine[None, None, None]]", limit_s: float, stop: "asyncio.Future[str] | None"
) -> None:
    """Do a step of each until all are done, `limit_s` seconds are over or `stop` is set; the rest is cancelled.

    Who did not come to the end of it has a fault that says so.
    """
    tasks: dict[Party, asyncio.Future[None]] = {party: asyncio.ensure_future(step) for party, step in steps.items()}
    if not tasks:
        return
    whole = asyncio.ensure_future(asyncio.wait(tasks.values()))
    ends: set[asyncio.Future[Any]] = {whole} if stop is None else {whole, stop}
    try:
        await asyncio.wait(ends, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        late = [party for party, task in tasks.items() if not task.done()]
        for task in tasks.values():
            task.cancel()
        await whole
    for party in late:
        party.give_up(f"{what} was given up" if stop and stop.done() else f"{what} took longer than {limit_s:g} s")
    for task in tasks.values():
        if not task.cancelled():
            task.result()
