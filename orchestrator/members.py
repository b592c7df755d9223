"""The values of a pool: its engines, and who uses or waits for them."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from dataserver.weight_sync import PolicyVersion
from orchestrator.engines.interface import Engine


class MemberState(StrEnum):
    """How an engine stands; `pool` draws the ways between them."""

    UNSEEN = "unseen"
    AWAY = "away"
    READY = "ready"
    SYNCING = "syncing"
    RESTARTING = "restarting"


@dataclass(slots=True, eq=False)
class Member:
    """An engine of the pool. `version`: whose weights it serves whole; None: none of this run's that survive.

    `sync_id`: the sync that brought them, by its label.
    """

    engine: Engine
    state: MemberState = MemberState.UNSEEN
    sync_id: str | None = None
    version: PolicyVersion | None = None
    workers: int = 0
    loans: int = 0
    pins: int = 0
    detail: str = ""
    # Counts the changes of `state`: a status that was asked for before one says nothing about after.
    turn: int = 0

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.engine.name

    def __str__(self) -> str:
        """For people: how it stands, and why."""
        return f"{self.name} is {self.state.value}{f' ({self.detail})' if self.detail else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoan:
    """Leave to use an engine. `version`: what it serves now; without a pin newer weights may arrive meanwhile."""

    engine: Engine
    version: PolicyVersion


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waiter:
    """Somebody who waits for a loan. `avoid`: names of engines that come last."""

    version: PolicyVersion | None
    pin: bool
    avoid: Collection[str] = ()
    granted: "asyncio.Future[Member]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
