"""Carries what evals want of the weights to the data server: requests, and one hold that lives while they want it."""

import asyncio
import logging

from dataserver.errors import DataServerError, OutOfRangeError, PreconditionError
from dataserver.weight_sync import SyncState
from orchestrator.data_server import PASSING, RETRY_S, DataServer
from orchestrator.wants import Wants

log = logging.getLogger(__name__)

# The hold is renewed so many times before it would end.
RENEWALS = 3


class Demand:
    """Asks once for each version of an attempt, and keeps the hold alive."""

    def __init__(self, server: DataServer, *, run: str, hold_id: str, ttl_s: float) -> None:
        self._server = server
        self._run = run
        self._hold_id = hold_id
        self._ttl_s = ttl_s
        self._wants = Wants()
        self._attempt = 0
        self._asked: set[int | None] = set()
        self._held = False
        self._renew_at = 0.0
        self._woken = asyncio.Event()
        self._holding = asyncio.Lock()
        self._released = False

    def want(self, wants: Wants, state: SyncState) -> None:
        """What is wanted from now on, of a run that stands like that. Takes no time; nothing is after `release`."""
        if self._released:
            return
        if state.attempt != self._attempt:
            self._attempt, self._asked = state.attempt, set()
        self._wants = wants
        self._woken.set()

    async def run(self) -> None:
        """Tell the data server, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._woken.clear()
            pause_s = None
            try:
                await self._ask()
                await self._hold()
            except PASSING as error:
                log.info("what evals want is told later: %s", error)
                pause_s = RETRY_S
            if pause_s is None and self._held:
                pause_s = max(0.0, self._renew_at - loop.time())
            try:
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def release(self) -> None:
        """Want nothing any more, and end the hold, if the data server is there to hear it."""
        self._released = True
        self._wants = Wants()
        try:
            await self._hold()
        except DataServerError as error:
            log.info("the hold ends by itself: %s", error)

    async def _ask(self) -> None:
        """Ask for what has not been asked for in this attempt."""
        wanted: set[int | None] = {*self._wants.versions, *([None] if self._wants.last else [])}
        for version in sorted(wanted - self._asked, key=lambda version: -1 if version is None else version):
            attempt = self._attempt
            try:
                answer = await self._server.call(self._server.calls.request_sync, self._run, version)
                log.debug("version %s: %s", "last" if version is None else version, answer)
            except (OutOfRangeError, PreconditionError) as error:
                log.warning("version %s cannot be had: %s", "last" if version is None else version, error)
            if attempt == self._attempt:
                self._asked.add(version)

    async def _hold(self) -> None:
        # A hold that is being taken while it is released would outlive its release.
        async with self._holding:
            await self._tell_hold()

    async def _tell_hold(self) -> None:
        loop = asyncio.get_running_loop()
        calls = self._server.calls
        if not self._wants.hold:
            if self._held:
                await self._server.call(calls.release_sync, self._run, self._hold_id)
                self._held = False
        elif not self._held or loop.time() >= self._renew_at:
            asked = loop.time()
            await self._server.call(calls.hold_sync, self._run, self._hold_id, self._ttl_s)
            self._held, self._renew_at = True, asked + self._ttl_s / RENEWALS
