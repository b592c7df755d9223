"""Ranks compare what they were given before they act on it.

A rank whose step, plan or sync flag differs would enter another collective than its peers, and
all would hang. So each step begins with one small gather, before any collective whose shape
depends on the plan; it also brings rank 0's word to all at the start of a job.
"""

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import TypeVar

import torch
import torch.distributed as dist

from dataserver.weight_sync import Offer
from trainer.errors import RanksDisagreeError
from trainer.feed import Step
from trainer.launch import World

ValueT = TypeVar("ValueT")

END = "end of run"


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
    _compare(f"offer {offer.number} of version {offer.version}, sync_weights {offer.sync_weights}", world)


def _compare(identity: str, world: World) -> None:
    if world.size == 1:
        return
    mine = torch.tensor([_digest(identity)])
    all_of_them = [torch.empty_like(mine) for _ in range(world.size)]
    dist.all_gather(all_of_them, mine)
    if any(not torch.equal(other, mine) for other in all_of_them):
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
