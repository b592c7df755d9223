"""Rule 13: which versions can still be asked for, and what a request is answered.

Reached through this module's name, as all rules, so that a test can take one away.
"""

from collections.abc import Collection
from dataclasses import dataclass

from dataserver.errors import OutOfRangeError, PreconditionError
from dataserver.ledger.records import RunRow
from dataserver.weight_sync import RequestOutcome, SyncAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What a run can still bring.

    `head`: the highest version that is sealed. `opening`: it is the base, and its opening offer is still to come.
    `last_sealed`: the run ends with it. `over`: and nothing is offered any more. `landed`, `pending`: which of the
    versions that matter have landed, or are stamped and not yet reported. `max_steps`: None for no bound.
    """

    head: int
    opening: bool
    last_sealed: bool
    over: bool
    landed: Collection[int]
    pending: Collection[int]
    max_steps: int | None

    @property
    def end(self) -> int | None:
        """The version that the run ends with, as far as is known."""
        return self.head if self.last_sealed else self.max_steps

    @property
    def earliest(self) -> int | None:
        """The lowest version whose stamp or offer is still to be sealed."""
        if self.over:
            return None
        return self.head if self.opening or self.last_sealed else self.head + 1


def answer(run: RunRow, prospect: Prospect, version: int, *, at_or_after: bool) -> SyncAnswer:
    """Rule 13: a request is never just written down: who asks too late is told, and what is still possible.

    Else an eval waits for a version whose stamp was fixed before it asked, and the run ends without it.
    """
    refuse_beyond_end(run, prospect, version)
    if version in prospect.landed:
        return SyncAnswer(outcome=RequestOutcome.LANDED, version=version)
    earliest = prospect.earliest
    if is_open(prospect, version):
        return SyncAnswer(outcome=RequestOutcome.ACCEPTED, version=version)
    if earliest is None:
        raise _over(run, f"version {version} did not land")
    if not at_or_after:
        return SyncAnswer(outcome=RequestOutcome.ALREADY_SEALED, version=earliest)
    outcome = RequestOutcome.LANDED if earliest in prospect.landed else RequestOutcome.ACCEPTED
    return SyncAnswer(outcome=outcome, version=earliest)


def answer_last(run: RunRow, prospect: Prospect) -> SyncAnswer:
    """Rule 13: LAST is the version that the run ends with, whichever that is."""
    if prospect.last_sealed and prospect.head in prospect.landed:
        return SyncAnswer(outcome=RequestOutcome.LANDED, version=prospect.head)
    if prospect.over and prospect.head not in prospect.pending:
        raise _over(run, f"its last version, {prospect.head}, did not land")
    return SyncAnswer(outcome=RequestOutcome.ACCEPTED, version=None)


def is_to_come(prospect: Prospect, version: int) -> bool:
    """Rule 13: whether the version's step is still to be sealed; its seal will read the request."""
    return version > prospect.head


def is_open(prospect: Prospect, version: int) -> bool:
    """Rule 13: whether a version that has not landed still may: by a stamp to come, or by one without a report yet."""
    return is_to_come(prospect, version) or version in prospect.pending or version == prospect.earliest


def refuse_beyond_end(run: RunRow, prospect: Prospect, version: int) -> None:
    """Rule 13: a version that the run cannot reach is an error, not a wait without end."""
    end = prospect.end
    if end is not None and version > end:
        raise OutOfRangeError(
            f"version {version} of run {run.name!r} will not exist: the run ends with version {end}; ask for that one, "
            "or for the last",
            last_version=end,
        )


def _over(run: RunRow, what: str) -> PreconditionError:
    return PreconditionError(
        f"run {run.name!r} is over and offers no weights any more; {what}. Take them from its last checkpoint",
        sealed_step=run.sealed_step,
    )
