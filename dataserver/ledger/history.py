"""What lies behind a run, as others see it."""

from dataclasses import dataclass

from dataserver.cursor import Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A checkpoint that holds everything up to `cursor`."""

    cursor: Cursor
    attempt: int
    checkpoint_uri: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened to a run; `number` increases."""

    number: int
    time: float
    kind: str
    attempt: int
    step: int
    detail: str
