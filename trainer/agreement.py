"""Ranks compare what they were given before they act on it.

A rank whose step, plan or sync flag differs would enter another collective than its peers, and
all would hang. So each step begins with one small gather, before any collective whose shape
depends on the plan; it also brings rank 0's word to all at the start of a job.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import TypeVar

import torch
import torch.distributed as dist

from dataserver.errors import UnavailableError
from dataserver.weight_sync import Offer
from trainer.errors import RanksDisagreeError
from trainer.feed import Step
from trainer.launch import World

ValueT = TypeVar("ValueT")

END = "end of run"
LOST = "no server"

log = logging.getLogger(__name__)


def told_by_first(world: World, decide: Callable[[], ValueT]) -> ValueT:
    """What rank 0 decides, on all ranks; the others do not call `decide`.

    When `decide` raises on rank 0, the job ends there, and the others with it.
    """
    if world.size == 1:
        return decide()
    told = [decide() if world.is_first else None]
    dist.broadcast_object_list(told, src=0, device=torch.device("cpu"))
    value: ValueT = told[0]  # type: ignore[assignment]
    return value


def agreed(steps: Iterable[Step], world: World) -> Iterator[Step]:
    """Yield the steps, each after all ranks showed that they have the same one.

    Raises `RanksDisagreeError` naming the values and the ranks that have them.
    """
    for step in steps:
        _compare(f"step {step.number}, plan {step.plan_digest}, sync_weights {step.sync_weights}", world)
        yield step
    _compare(END, world)


def agreed_offer(offer: Offer, world: World) -> None:
    """Return when all ranks showed that they have the same offer; raises `RanksDisagreeError`."""
    _compare(_identity(offer), world)


def agreed_offers(offers: Iterator[Offer], world: World) -> Iterator[Offer]:
    """Yield what is offered after the last step, each when all ranks showed that they have the same.

    Ends with the run, and on all ranks as soon as one finds no server: the steps are done all the same, and a rank
    that ended alone would leave the others in the next collective. Raises `RanksDisagreeError`.
    """
    while True:
        offer, fault = None, f"another rank found {LOST}"
        try:
            offer = next(offers, None)
            identity = END if offer is None else _identity(offer)
        except UnavailableError as error:
            identity, fault = LOST, str(error)
        found = _digests(identity, world)
        if _digest(LOST) in found:
            log.warning("the last step is done, but the end of the run was not heard: %s", fault)
            return
        _refuse_differences(found, identity, world)
        if offer is None:
            return
        yield offer


def of_all_ranks(number: int, world: World) -> list[int]:
    """A signed number of 64 bits of each rank, in their order; a collective."""
    mine = torch.tensor([number])
    all_of_them = [mine]
    if world.size > 1:
        all_of_them = [torch.empty_like(mine) for _ in range(world.size)]
        dist.all_gather(all_of_them, mine)
    return [int(each) for each in all_of_them]


def _identity(offer: Offer) -> str:
    return f"offer {offer.number} of version {offer.version}, sync_weights {offer.sync_weights}"


def _compare(identity: str, world: World) -> None:
    _refuse_differences(_digests(identity, world), identity, world)


def _digests(identity: str, world: World) -> set[int]:
    """Digests of all that the ranks have; a collective."""
    return set(of_all_ranks(_digest(identity), world))


def _refuse_differences(digests: set[int], identity: str, world: World) -> None:
    if len(digests) > 1:
        raise RanksDisagreeError(_difference(identity, world))


def _difference(identity: str, world: World) -> str:
    identities: list[str] = [""] * world.size
    dist.all_gather_object(identities, identity)
    ranks: dict[str, list[int]] = {}
    for rank, other in enumerate(identities):
        ranks.setdefault(other, []).append(rank)
    values = "; ".join(f"{other} on ranks {having}" for other, having in ranks.items())
    return f"ranks were given different steps: {values}. Are all of them served from one ledger?"


def _digest(identity: str) -> int:
    return int.from_bytes(blake2b(identity.encode(), digest_size=8).digest(), "little", signed=True)
