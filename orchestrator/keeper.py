"""Looks how engines are, and has those that may hold a mix started anew.

Whoever finds an engine paused, asleep, or with an open update, that takes part in no transfer cannot know what it
holds: an orchestrator died, or a person called it; one that slept may have dropped its weights. It is restarted, and
serves nothing before it is synced in full.
"""

import asyncio
import logging

from orchestrator.errors import EngineError
from orchestrator.members import Member, MemberState
from orchestrator.pool import Pool

log = logging.getLogger(__name__)

# Between two tries to restart an engine; the command itself takes minutes where it loads a model.
RETRY_S = 5.0


class Keeper:
    """Keeps the pool true to its engines while `run` runs."""

    def __init__(self, pool: Pool, *, every_s: float, retry_s: float = RETRY_S) -> None:
        self._pool = pool
        self._every_s = every_s
        self._retry_s = retry_s
        self._restarts: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Look at every engine now and then, for ever. Ends its restarts when it is cancelled."""
        try:
            await asyncio.gather(*(self._watch(member) for member in self._pool.members))
            await asyncio.Event().wait()
        finally:
            for task in self._restarts.values():
                task.cancel()
            if self._restarts:
                await asyncio.wait(self._restarts.values())

    def restart(self, member: Member, why: str) -> None:
        """Take the engine out and have it started anew, in the background."""
        log.warning("engine %s is restarted: %s", member.name, why)
        self._pool.tear(member, why)
        task = self._restarts.get(member.name)
        if task is None or task.done():
            self._restarts[member.name] = asyncio.create_task(self._restart(member), name=f"restart {member.name}")

    async def look(self, member: Member) -> None:
        """See how the engine is, unless a transfer or a restart has it."""
        if member.state in {MemberState.SYNCING, MemberState.RESTARTING}:
            return
        turn = member.turn
        status = await member.engine.status()
        if member.turn != turn:
            return
        if not status.healthy:
            if member.state is not MemberState.AWAY:
                log.warning("engine %s is away: %s", member.name, status.detail)
            self._pool.lose(member, status.detail)
        elif status.paused or status.update_open:
            self.restart(member, f"it was found {'with an open update' if status.update_open else 'paused or asleep'}")
        else:
            if member.state is not MemberState.READY:
                log.info("engine %s is there, with weights %s", member.name, status.label or "of its start")
            self._pool.see(member, status.label, status.workers)

    async def _watch(self, member: Member) -> None:
        while True:
            try:
                await self.look(member)
            except EngineError as error:
                self._pool.lose(member, str(error))
            await asyncio.sleep(self._every_s)

    async def _restart(self, member: Member) -> None:
        """Until it is fresh and healthy: by its command, or by whoever else restarts it."""
        told = ""
        while True:
            try:
                await member.engine.restart()
            except EngineError as error:
                if str(error) != told:
                    told = str(error)
                    log.error("%s", told)  # noqa: TRY400 - the engine's fault, not one of ours
            except Exception:
                # Nobody looks at what this task raises, and the engine would stay out for good.
                log.exception("engine %s: its restart met a fault of the orchestrator's own", member.name)
            status = await member.engine.status()
            if status.healthy and not status.paused and not status.update_open and status.label is None:
                self._pool.see(member, None, status.workers)
                return
            await asyncio.sleep(self._retry_s)
