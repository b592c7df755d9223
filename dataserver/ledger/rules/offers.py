"""Rule 15: when weights are offered outside a step, and when a run may end.

Reached through this module's name, as all rules, so that a test can take one away.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dataserver.errors import AttemptMismatchError, InvalidRequestError
from dataserver.ledger.records import OpenRequest, RankRow, RunRow
from dataserver.weight_sync import PolicyVersion

# Offers come at least so many seconds apart: an engine that refuses at once is asked again, and not all the time.
OFFER_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """How a run stands behind its last step.

    `offered`: number of the newest offer, 0 for the opening one, and `offer_time`, when it was sealed. `pending`: the
    last chance of the version (that offer, or its step) is stamped, and no report came since. `deadline`: when offers
    end. `led`: an orchestrator holds the lease.
    """

    version: PolicyVersion
    wanted: bool
    offered: int
    offer_time: float
    pending: bool
    deadline: float
    led: bool


def refuse_mixed_offers(run: RunRow, ranks: Sequence[RankRow], request: OpenRequest) -> None:
    """Rule 15: all ranks of an attempt take offers, or none does.

    Else some of them enter the collective of an offer that the others never see.
    """
    for rank in ranks:
        if rank.takes_offers not in (None, request.takes_offers):
            raise AttemptMismatchError(
                f"rank {request.world_rank} of run {run.name!r} opens with takes_offers = "
                f"{str(request.takes_offers).lower()}, rank {rank.world_rank} with "
                f"{str(rank.takes_offers).lower()}: give all ranks of an attempt the same"
            )


def refuse_skipped_offer(run: RunRow, request: OpenRequest, offered: int) -> None:
    """Rule 15: a rank goes on with the offer after the last one that it is done with.

    Else it passes over one that the other ranks enter a collective for.
    """
    if not 0 <= request.acked_offer <= offered:
        raise AttemptMismatchError(
            f"rank {request.world_rank} of run {run.name!r} opens as done with offer {request.acked_offer}, but the "
            f"last that is sealed is {offered}"
        )


def refuse_wrong_offer_ack(run: RunRow, ranks: Sequence[RankRow], world_rank: int, offer: int, offered: int) -> None:
    """Rule 15: an ack of an offer comes from a rank of the attempt, and for one that is sealed."""
    if not 0 <= world_rank < len(ranks):
        raise InvalidRequestError(f"ack of an offer by rank {world_rank}: run {run.name!r} has {len(ranks)} ranks")
    if not 0 <= offer <= offered:
        raise InvalidRequestError(
            f"rank {world_rank} acknowledges offer {offer} of run {run.name!r}, but the last sealed offer is {offered}"
        )


def is_wanted(*, requested: bool, held: bool, landed: bool) -> bool:
    """Rule 15: the last version is offered while somebody wants it who has not got it."""
    return (requested or held) and not landed


def may_end(closing: Closing, now: float) -> bool:
    """Rule 15: the end is sealed when nothing is wanted, or the shutdown deadline has passed.

    Else the run ends between a failed sync and the next one, and its last version is never evaluated; or an
    orchestrator that is gone for good keeps the trainer up for ever.
    """
    return not closing.wanted or now >= closing.deadline


def waits_for(closing: Closing, ranks: Sequence[RankRow], now: float) -> str:
    """Rule 15: what the next offer waits for, in words; "" when it may be sealed.

    Else the version is offered while ranks are still in the transfer before, or while that one may yet land.
    """
    behind = [rank.world_rank for rank in ranks if rank.acked_offer < closing.offered]
    if behind:
        more = f" and {len(behind) - 8} more" if len(behind) > 8 else ""
        return f"rank {', '.join(map(str, behind[:8]))}{more} to be done with offer {closing.offered}"
    if closing.pending:
        return f"the report of a sync of version {closing.version}"
    if not closing.led:
        return f"an orchestrator to take version {closing.version}"
    if closing.offered and now < closing.offer_time + OFFER_PAUSE_S:
        return f"the next try to hand over version {closing.version}"
    return ""
