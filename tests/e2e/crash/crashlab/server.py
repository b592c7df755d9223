"""The real server, around whose ledger the test can crash things."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import uvloop

from crashlab.trigger import Point, Trigger
from dataserver.config import ServerConfig
from dataserver.cursor import Cursor
from dataserver.ledger.interface import Attempt, Ledger, Run
from dataserver.ledger.steps import AttemptKey, Progress, ProposedSeal, Seal
from dataserver.server import app


class CrashingLedger:
    """The ledger that it is given, with points at which the trigger may go off."""

    def __init__(self, ledger: Ledger, trigger: Trigger) -> None:
        self._ledger = ledger
        self._trigger = trigger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def begin_attempt(self, name: str, *, cursor: Cursor | None, **fields: Any) -> Attempt:
        step = cursor.step if cursor else 0
        self._trigger.reach(Point.BEGIN_NOT_WRITTEN, step)
        attempt = self._ledger.begin_attempt(name, cursor=cursor, **fields)
        self._trigger.reach(Point.BEGIN_NOT_ANSWERED, step)
        return attempt

    def open_stream(self, name: str, *, next_step: int, **fields: Any) -> Run:
        self._trigger.reach(Point.OPEN_NOT_WRITTEN, next_step)
        run = self._ledger.open_stream(name, next_step=next_step, **fields)
        self._trigger.reach(Point.OPEN_NOT_ANSWERED, next_step)
        return run

    def record_acks(self, run_uid: str, attempt: AttemptKey, acks: Mapping[int, int]) -> Progress:
        self._trigger.reach_up_to(Point.ACKS_NOT_WRITTEN, max(acks.values()))
        progress = self._ledger.record_acks(run_uid, attempt, acks)
        self._trigger.reach_up_to(Point.ACKS_NOT_ANSWERED, max(acks.values()))
        return progress

    def seal(self, run_uid: str, attempt: AttemptKey, proposed: ProposedSeal) -> Seal:
        self._trigger.reach(Point.BEFORE_SEAL, proposed.step)
        seal = self._ledger.seal(run_uid, attempt, proposed)
        self._trigger.reach(Point.AFTER_SEAL, proposed.step)
        return seal

    def commit_cursor(self, name: str, attempt: AttemptKey, cursor: Cursor, checkpoint_uri: str) -> Run:
        self._trigger.reach(Point.COMMIT_NOT_WRITTEN, cursor.step)
        run = self._ledger.commit_cursor(name, attempt, cursor, checkpoint_uri)
        self._trigger.reach(Point.COMMIT_NOT_ANSWERED, cursor.step)
        return run


def serve(config: ServerConfig, trigger: Trigger, ready: int) -> None:
    """Serve until killed; writes a byte to the file descriptor `ready` once the port is open."""
    open_real = app.open_ledger
    app.open_ledger = lambda *args, **options: CrashingLedger(open_real(*args, **options), trigger)

    async def run() -> None:
        server = app.DataServer(config, reuse_port=True)
        await server.start()
        os.write(ready, b"!")
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
