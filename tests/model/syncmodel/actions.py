"""What can happen next in a world."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ledgermodel.play import Event, ViolationError

from dataserver.weight_sync import RequestOutcome, SyncOutcome
from syncmodel.play import RANKS, RUN, SyncPlay
from syncmodel.world import World

LEASE_S = 2.0


def events(play: SyncPlay, world: World) -> Iterator[Event]:
    """Everything that can happen next; what would be refused is among it."""
    if world.finished:
        return
    if world.attempt is None:
        if play.scenario.trains:
            yield Event("a job begins an attempt", play.begin)
    else:
        yield from _job(play, world)
    for report in sorted(world.reports, key=repr):
        told = f"the report that sync {report.sync} of version {report.version} {report.outcome} arrives"
        yield Event(told, partial(play.arrive, report=report))
    yield from _wishes(play, world)
    yield from _orchestrators(play, world)


def _job(play: SyncPlay, world: World) -> Iterator[Event]:
    for number in range(RANKS):
        yield from _rank(play, world, number)
    waiting = [rank for rank in world.ranks if rank.chance is not None]
    if len(waiting) == RANKS:
        yield from _meetings(play, world)
    elif waiting and any(rank.ended for rank in world.ranks):
        yield Event("the ranks meet", _meet_nobody)
    steps = {rank.step for rank in world.ranks}
    if len(steps) == 1 and max(steps) > world.saved and world.may("crash"):
        yield Event(f"a checkpoint of step {max(steps)} is saved", partial(_save, step=max(steps)))
    if world.may("crash"):
        yield Event("a rank is killed, and the job with it", partial(_spending, "crash", partial(play.fail)))


def _rank(play: SyncPlay, world: World, number: int) -> Iterator[Event]:
    rank, who = world.ranks[number], f"rank {number} of attempt {world.attempt.number}"
    if rank.acked_offer < rank.offer:
        yield Event(f"{who} acknowledges offer {rank.offer}", partial(play.acknowledge_offer, number=number))
    if not rank.streams:
        yield Event(f"{who} opens its stream", partial(play.open, number=number))
        if world.may("mixed"):
            act = partial(_spending, "mixed", partial(play.open, number=number, plain=True))
            yield Event(f"{who} (confused) opens a stream without offers", act)
        return
    if world.may("wrong_ack"):
        act = partial(_spending, "wrong_ack", partial(_ack_too_much, play, number=number))
        yield Event(f"{who} (confused) acknowledges an offer too many", act)
    if rank.chance is None and not rank.ended:
        yield Event(f"{who} gets what follows", partial(play.receive, number=number))
    if world.may("reconnect") and not rank.ended:
        act = partial(_spending, "reconnect", partial(World.with_rank, number=number, streams=False))
        yield Event(f"{who} loses its connection", act)


def _meetings(play: SyncPlay, world: World) -> Iterator[Event]:
    chance = world.ranks[0].chance
    told = f"the ranks meet in {chance.kind} {chance.number}"
    if not any(rank.chance.sync_weights for rank in world.ranks):
        yield Event(told, partial(play.meet, outcome=None))
    elif not chance.epoch:
        yield Event(f"{told}, and nobody takes the weights", partial(play.meet, outcome=SyncOutcome.SKIPPED))
    else:
        yield Event(f"{told}, and the weights land", partial(play.meet, outcome=SyncOutcome.LANDED))
        if world.may("fail"):
            act = partial(_spending, "fail", partial(play.meet, outcome=SyncOutcome.FAILED))
            yield Event(f"{told}, and the transfer fails", act)
        if world.may("contradiction"):
            landed = partial(play.meet, outcome=SyncOutcome.LANDED, contradict=True)
            act = partial(_spending, "contradiction", landed)
            yield Event(f"{told}, the weights land, and the trainer does not hear of it", act)


def _wishes(play: SyncPlay, world: World) -> Iterator[Event]:
    if world.may("last"):
        yield Event("the last version is requested", partial(_request_last, play))
    for mishap, at_or_after in (("request", False), ("after", True)):
        if world.may(mishap):
            for version in range(play.scenario.steps + 2):
                act = partial(_request, play, version=version, at_or_after=at_or_after)
                label = f"version {version} is requested{', or one after it' if at_or_after else ''}"
                yield Event(label, partial(_spending, mishap, act))
    if world.may("hold"):
        yield Event("an eval takes a hold", partial(_spending, "hold", partial(_hold, play)))


def _orchestrators(play: SyncPlay, world: World) -> Iterator[Event]:
    if world.may("gone"):
        yield Event("the orchestrator leaves for good", partial(_spending, "gone", partial(_leave, play)))
    deadline = play.ledger_state(world).shutdown_deadline if world.may("patience") else None
    if deadline is not None:
        act = partial(_spending, "patience", partial(replace, now=deadline))
        yield Event("the shutdown deadline passes", act)
    if world.may("takeover"):
        for holder in ("one", "two"):
            act = partial(_spending, "takeover", partial(_lease, play, holder=holder))
            yield Event(f"orchestrator {holder} asks for the lease", act)
    if world.may("moment"):
        act = partial(_spending, "moment", partial(replace, now=world.now + LEASE_S / 2))
        yield Event("half a lease goes by", act)


def _spending(mishap: str, act: partial[World], world: World) -> World | None:
    after = act(world)
    return None if after is None else after.spend(mishap)


def _ack_too_much(play: SyncPlay, world: World, number: int) -> World:
    """It acknowledges the second offer, which is not made before every rank is done with the first."""
    play.ledger.ack_offers(play.uid, world.attempt, {number: 2})
    return world


def _meet_nobody(world: World) -> World:
    held = next(rank.chance for rank in world.ranks if rank.chance is not None)
    raise ViolationError(f"a rank waits in {held.kind} {held.number} for one that has left after the end")


def _save(world: World, step: int) -> World:
    return replace(world, saved=step)


def _request_last(play: SyncPlay, world: World) -> World:
    answer = play.ledger.request_sync(RUN, None)
    accepted = answer.outcome is RequestOutcome.ACCEPTED
    return replace(world, last_accepted=world.last_accepted or accepted).spend("last")


def _request(play: SyncPlay, world: World, version: int, *, at_or_after: bool) -> World:
    answer = play.ledger.request_sync(RUN, version, at_or_after=at_or_after)
    if answer.outcome is not RequestOutcome.ACCEPTED:
        return world
    return replace(world, accepted=world.accepted | {answer.version})


def _hold(play: SyncPlay, world: World) -> World:
    play.ledger.hold_sync(RUN, "eval", LEASE_S)
    return world


def _leave(play: SyncPlay, world: World) -> World:
    play.ledger.release_orchestrator(RUN, "one")
    return world


def _lease(play: SyncPlay, world: World, holder: str) -> World:
    """An orchestrator is granted the lease, and believes it until it ends."""
    lease = play.ledger.lease_orchestrator(RUN, holder, f"host:{len(holder)}", LEASE_S)
    epoch = lease.orchestrator.epoch
    if any(other != holder and until > world.now for other, _, until in world.beliefs):
        raise ViolationError(f"orchestrator {holder} leads while another one does")
    mine = {known: until for known, own, until in world.beliefs if own == epoch}
    if any(known == epoch and whose != holder for known, whose in world.epochs) or (
        (epoch, holder) in world.epochs and mine.get(holder, 0.0) <= world.now
    ):
        raise ViolationError(f"epoch {epoch} is given out twice")
    kept = tuple(belief for belief in world.beliefs if belief[0] != holder)
    beliefs = tuple(sorted((*kept, (holder, epoch, lease.expire_time))))
    finished = not play.scenario.trains and dict(world.left)["takeover"] == 1
    return replace(world, beliefs=beliefs, epochs=world.epochs | {(epoch, holder)}, finished=finished)
