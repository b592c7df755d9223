"""Breadth first over all states of a scenario: the shortest way to a fault, or the certainty that there is none.

A dead end is a state from which no sequence of events leads to the end of the run.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ledgermodel.actions import events
from ledgermodel.play import Event, Play, ViolationError
from ledgermodel.scenarios import Scenario
from ledgermodel.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of it: how much was looked at, and the fault with the events that lead to it."""

    states: int
    transitions: int
    fault: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        told = "\n".join(f"  {number:2}. {event}" for number, event in enumerate(self.trace, 1))
        return f"{self.fault or 'no fault'} ({self.states} states, {self.transitions} transitions)\n{told}"


class TooManyStatesError(Exception):
    """The scenario is larger than it was meant to be; no verdict."""


class _Graph:
    """States by number, how each was reached first, and from where it can be reached at all."""

    def __init__(self, start: World) -> None:
        self.worlds = [start]
        self.numbers = {start: 0}
        self.reached_by: list[tuple[int, str]] = [(-1, "")]
        self.before: list[list[int]] = [[]]
        self.transitions = 0

    def add(self, origin: int, event: str, world: World) -> int | None:
        """Note a transition; the number of the state that it leads to, if that is new."""
        self.transitions += 1
        number = self.numbers.get(world)
        if number is not None:
            self.before[number].append(origin)
            return None
        number = self.numbers[world] = len(self.worlds)
        self.worlds.append(world)
        self.reached_by.append((origin, event))
        self.before.append([origin])
        return number

    def trace(self, number: int) -> tuple[str, ...]:
        events = []
        while number > 0:
            number, event = self.reached_by[number]
            events.append(event)
        return tuple(reversed(events))

    def dead_end(self) -> int | None:
        """The first state from which the end of the run cannot be reached."""
        alive = [world.finished for world in self.worlds]
        todo = [number for number, finished in enumerate(alive) if finished]
        while todo:
            for origin in self.before[todo.pop()]:
                if not alive[origin]:
                    alive[origin] = True
                    todo.append(origin)
        return alive.index(False) if False in alive else None


def explore(scenario: Scenario, most_states: int = 60_000) -> Found:
    """Look at every state of the scenario, or as far as the first fault."""
    with Play(scenario) as play:
        return search(play, events, most_states)


def search(play: Any, events: Callable[[Any, Any], Iterable[Event]], most_states: int) -> Found:
    """Look at every state that `events` leads to, or as far as the first fault. Raises `TooManyStatesError`."""
    graph = _Graph(play.start())
    todo = deque([0])
    while todo:
        number = todo.popleft()
        for event in events(play, graph.worlds[number]):
            try:
                world = play.happen(graph.worlds[number], event)
            except ViolationError as violation:
                return _found(graph, str(violation), (*graph.trace(number), event.label))
            if world is not None and (new := graph.add(number, event.label, world)) is not None:
                todo.append(new)
        if len(graph.worlds) > most_states:
            raise TooManyStatesError(f"more than {most_states} states in {play.scenario}")
    stuck = graph.dead_end()
    if stuck is None:
        return _found(graph, "", ())
    return _found(graph, "dead end: from here the run cannot end", graph.trace(stuck))


def _found(graph: _Graph, fault: str, trace: tuple[str, ...]) -> Found:
    return Found(states=len(graph.worlds), transitions=graph.transitions, fault=fault, trace=trace)
