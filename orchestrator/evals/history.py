"""How a run was moved, which says whose weights survive."""

from collections.abc import Iterable
from dataclasses import dataclass

from dataserver.wire.runs import RunEventInfo

# What moves a run, as its history calls it; the event's step is the base.
MOVES = frozenset({"attempt_begun", "rewound"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """A run's uid, and (attempt, base) of every time that it was moved."""

    uid: str
    bases: tuple[tuple[int, int], ...]


def history_of(uid: str, events: Iterable[RunEventInfo]) -> RunHistory:
    """The history of a run, from its events."""
    return RunHistory(uid=uid, bases=tuple((event.attempt, event.step) for event in events if event.kind in MOVES))
