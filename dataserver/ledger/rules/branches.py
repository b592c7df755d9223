"""Rule 4: what survives when an attempt begins. Reached through this module's name, as all rules."""

from dataclasses import dataclass

from dataserver.cursor import Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Steps to be forgotten: those after `after`, and those up to `up_to` (-1 for none)."""

    after: int
    up_to: int


def dropped_steps(base: Cursor, known: Cursor | None) -> Dropped:
    """Rule 4: what a new attempt drops. `known` is the cursor that the ledger has for `base`'s step.

    All after the base: else the attempt meets steps that were cut for other ranks, and can neither serve nor reseal
    them. Where the ledger does not know the base, also all up to it: else the steps of another branch pass for the
    way to the base, and a resume by one of their versions repeats samples.
    """
    return Dropped(after=last_surviving_step(base), up_to=-1 if proven(base, known) else base.step)


def last_surviving_step(base: Cursor) -> int:
    """Rule 4: the step after which nothing survives."""
    return base.step


def proven(base: Cursor, known: Cursor | None) -> bool:
    """Rule 4: whether the steps that the ledger has before `base` lead to it."""
    return base == known
