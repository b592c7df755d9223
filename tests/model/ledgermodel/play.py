"""The real ledger and everybody around it; an event, and what must never happen."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from dataserver.errors import DataServerError
from dataserver.ledger import Run
from ledgermodel.box import LedgerBox
from ledgermodel.planning import FINGERPRINT, run_spec
from ledgermodel.scenarios import Scenario
from ledgermodel.serving import RUN, Servers
from ledgermodel.world import World


class ViolationError(Exception):
    """Something that must never happen did."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that can happen: in words, and what comes of it; None where nothing changes."""

    label: str
    act: Callable[[World], World | None]


class Play:
    """One ledger for all worlds of a scenario: put back to how it stood before each event."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.ledger = LedgerBox()
        self.servers = Servers(scenario, self.ledger)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.close()

    @property
    def run(self) -> Run:
        return self.ledger.get_run(RUN)

    def start(self) -> World:
        spec = run_spec(self.scenario.steps, self.scenario.lookahead)
        self.ledger.create_run(RUN, spec, FINGERPRINT, epoch_samples=8)
        return World(
            ledger=self.ledger.state,
            jobs=(None,) * self.scenario.holders,
            left=tuple(sorted(self.scenario.mishaps.items())),
        )

    def happen(self, world: World, event: Event) -> World | None:
        """The world after the event; None where it is refused or changes nothing. Raises `ViolationError`."""
        self.ledger.state, self.ledger.now, self.ledger.restores = world.ledger, world.now, world.restores
        try:
            after = event.act(world)
        except DataServerError:
            return None
        return None if after is None else replace(after, ledger=self.ledger.state)
