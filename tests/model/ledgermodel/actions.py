"""What can happen next in a world."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from dataserver.cursor import Cursor
from dataserver.errors import DataServerError
from ledgermodel import trainer
from ledgermodel.box import LEASE_S
from ledgermodel.planning import FINGERPRINT, FOREIGN, later_stage
from ledgermodel.play import Event, Play, ViolationError
from ledgermodel.serving import RUN
from ledgermodel.world import Checkpoint, Job, Message, World

FOREIGN_CHECKPOINT = Checkpoint(cursor=Cursor(order_fingerprint=FOREIGN, step=1, position=2), weights=(0, 1))


def events(play: Play, world: World) -> Iterator[Event]:
    """Everything that can happen next; what would be refused is among it."""
    if world.finished:
        return
    for holder, job in enumerate(world.jobs):
        if job is None:
            yield from _beginnings(play, world, holder)
        else:
            yield from _steps(play, world, holder, job)
    for message in sorted(world.under_way, key=repr):
        yield Event(f"{_told(message)} arrives", partial(_arrive, play, message=message))
        if world.may("loss"):
            lost = replace(world, under_way=world.under_way - {message}).spend("loss")
            yield Event(f"{_told(message)} is lost", partial(_become, lost))
        if world.may("duplicate"):
            yield Event(f"{_told(message)} arrives, and may again", partial(_arrive, play, message=message, again=True))
    yield from _wishes(play, world)
    yield from _mishaps(play, world)


def _beginnings(play: Play, world: World, holder: int) -> Iterator[Event]:
    newest = world.checkpoints[-1:] or (trainer.FRESH,)
    for checkpoint in (trainer.FRESH, *world.checkpoints) if play.scenario.any_checkpoint else newest:
        told = (
            "with fresh weights"
            if checkpoint is trainer.FRESH
            else f"from its checkpoint of step {checkpoint.cursor.step}"
        )
        act = partial(trainer.begin, play, holder=holder, checkpoint=checkpoint)
        yield Event(f"launcher {holder} begins an attempt {told}", act)
    if world.may("lost_checkpoints") and world.checkpoints:
        act = partial(_lose_checkpoints, play, holder=holder)
        yield Event(f"launcher {holder} finds no checkpoints and begins with fresh weights", act)
    if world.may("foreign_checkpoint"):
        act = partial(_begin_foreign, play, holder=holder)
        yield Event(f"launcher {holder} begins from a checkpoint of another order", act)


def _steps(play: Play, world: World, holder: int, job: Job) -> Iterator[Event]:
    for number in range(len(job.ranks)):
        yield from _streams(play, world, holder, number)
        yield from _rank_steps(play, world, holder, number)
    if all(rank.receipts and rank.applied == job.step for rank in job.ranks):
        act = partial(trainer.reduce, play, holder=holder)
        yield Event(f"the ranks of attempt {job.attempt} meet in the all-reduce of step {job.step + 1}", act)
    if job.step > job.saved_step and all(rank.applied == job.step for rank in job.ranks):
        act = partial(trainer.checkpoint, play, holder=holder)
        yield Event(f"attempt {job.attempt} saves its checkpoint of step {job.step} and commits it", act)
        if world.may("wrong_commit"):
            wrong = replace(job.cursor, position=job.base.position)
            label = f"attempt {job.attempt} saves its checkpoint of step {job.step} and commits another cursor"
            yield Event(label, partial(_spending, "wrong_commit", partial(act, wrong=wrong)))


def _streams(play: Play, world: World, holder: int, number: int) -> Iterator[Event]:
    job = world.jobs[holder]
    rank, who, scenario = job.ranks[number], f"rank {number} of attempt {job.attempt}", play.scenario
    if rank.left or (rank.receipts and rank.receipts[-1].ended):
        return
    if rank.server is None:
        for server in range(scenario.servers):
            act = partial(trainer.open_stream, play, holder=holder, number=number, server=server)
            yield Event(f"{who} opens its stream at server {server}", act)
            yield from _wrong_opens(world, job, number, act, f"{who} (confused) opens at server {server}")
    elif world.may("reconnect"):
        act = partial(_spending, "reconnect", partial(trainer.reconnect, play, holder=holder, number=number))
        yield Event(f"{who} opens another stream, and its first one is closed behind it", act)
    if rank.server is not None and len(rank.receipts) < scenario.credits:
        act = partial(trainer.receive, play, holder=holder, number=number)
        yield Event(f"server {rank.server} sends {who} step {rank.next_step}", act)
        if scenario.hasty:
            yield Event(f"server {rank.server} (hasty) sends {who} step {rank.next_step + 1}", partial(act, ahead=1))


def _rank_steps(play: Play, world: World, holder: int, number: int) -> Iterator[Event]:
    job = world.jobs[holder]
    rank, who = job.ranks[number], f"rank {number} of attempt {job.attempt}"
    ended = rank.receipts and rank.receipts[-1].ended
    if rank.applied < job.step:
        act = partial(trainer.apply, play, holder=holder, number=number)
        yield Event(f"{who} is done with step {job.step}", act)
    elif (job.last or ended) and play.scenario.short_servers and not rank.left:
        act = partial(trainer.leave, holder=holder, number=number)
        yield Event(f"{who} finished the last step, finds its server gone and exits", act)


def _wrong_opens(world: World, job: Job, number: int, act: partial[World], who: str) -> Iterator[Event]:
    """Opens of a confused rank. Too early: though it acknowledged the step; too late: past one that others got."""
    if (
        world.may("early_open")
        and job.step == job.ranks[number].applied > job.base.step
        and not job.ranks[number].receipts
    ):
        yield Event(f"{who}, one step too early", partial(_spending, "early_open", partial(act, skew=-1)))
    if world.may("late_open"):
        yield Event(f"{who}, one step too late", partial(_spending, "late_open", partial(act, skew=1)))
    if world.may("wrong_dp_rank"):
        wrong = partial(act, dp_rank=1 if job.dp_world_size == 1 else 0)
        if number == 1:
            yield Event(f"{who}, as another dp rank", partial(_spending, "wrong_dp_rank", wrong))


def _mishaps(play: Play, world: World) -> Iterator[Event]:
    lives = [job.attempt for job in world.jobs if job is not None]
    for holder, job in enumerate(world.jobs):
        if job is not None and world.may("crash"):
            act = partial(_spending, "crash", partial(World.with_job, holder=holder, job=None))
            yield Event(f"a rank of attempt {job.attempt} is killed, and the job with it", act)
    if not lives or world.may("silence"):
        yield Event("a lease runs out", partial(_silence, play, mishap=bool(lives)))
    if world.may("server_crash"):
        for server in range(play.scenario.servers):
            yield Event(f"server {server} is killed and comes back", partial(_kill_server, server=server))
    if world.may("idle") and not lives:
        yield Event("a lease's time goes by, and servers renew what they hold", partial(_idle, play))
    partitioned = play.scenario.partitioned
    if world.may("restore") and world.backup is None and not (partitioned and play.run.last_attempt):
        yield Event("the ledger's database is copied", partial(_become, replace(world, backup=world.ledger)))
    elif world.backup is not None and world.may("restore") and (play.scenario.forgetful or partitioned or not lives):
        yield Event("the ledger's database is lost, and the copy put in its place", partial(_restore, play))


def _wishes(play: Play, world: World) -> Iterator[Event]:
    if world.may("request"):
        yield Event("the weights of a step that some rank has got are requested", partial(_request, play, late=True))
        yield Event("the weights of the next step are requested", partial(_request, play, late=False))
    if world.may("hold"):
        yield Event("an eval takes a hold", partial(_hold, play))
    if world.may("amend"):
        for first_step in (play.run.sealed_step, play.run.sealed_step + 1, play.run.sealed_step + 2):
            act = partial(_amend, play, first_step=first_step)
            yield Event(f"the run is amended from step {first_step} on", act)
    if world.may("wrong_ack"):
        for number in range(trainer.WORLD_SIZE):
            act = partial(_ack_too_much, play, number=number)
            yield Event(f"rank {number} (confused) acknowledges a step too many", act)


def _arrive(play: Play, world: World, message: Message, *, again: bool = False) -> World:
    after = world.spend("duplicate") if again else replace(world, under_way=world.under_way - {message})
    with suppress(DataServerError):
        trainer.deliver(play, message)
    return after


def _become(after: World, _before: World) -> World:
    return after


def _spending(mishap: str, act: partial[World], world: World) -> World | None:
    after = act(world)
    return None if after is None else after.spend(mishap)


def _lose_checkpoints(play: Play, world: World, holder: int) -> World:
    world = replace(world, checkpoints=()).spend("lost_checkpoints")
    return trainer.begin(play, world, holder, trainer.FRESH)


def _begin_foreign(play: Play, world: World, holder: int) -> World:
    return trainer.begin(play, world.spend("foreign_checkpoint"), holder, FOREIGN_CHECKPOINT)


def _silence(play: Play, world: World, *, mishap: bool) -> World | None:
    attempt = play.run.attempt
    if attempt is None or attempt.lease_expire_time <= world.now:
        return None
    after = replace(world, now=attempt.lease_expire_time, silent=mishap)
    return after.spend("silence") if mishap else after


def _kill_server(world: World, server: int) -> World | None:
    after = world
    for holder, job in enumerate(world.jobs):
        for number, rank in enumerate(job.ranks if job else ()):
            if rank.server == server:
                after = after.with_job(holder, after.jobs[holder].with_rank(number, server=None))
    return None if after is world else after.spend("server_crash")


def _request(play: Play, world: World, *, late: bool) -> World | None:
    """Ask for the weights of the newest step of which a byte left, or of the one after, which is promised then."""
    jobs = [job for job in world.jobs if job]
    got = max((r.step for job in jobs for rank in job.ranks for r in rank.receipts), default=0)
    got = max(got, *(job.step for job in jobs), 0)
    if late and not got:
        return None
    version = got if late else got + 1
    play.ledger.request_sync(RUN, version)
    promised = world.promised if late else world.promised | {version}
    return replace(world, promised=promised).spend("request")


def _hold(play: Play, world: World) -> World:
    play.ledger.hold_sync(RUN, "eval", LEASE_S)
    return world.spend("hold")


def _amend(play: Play, world: World, first_step: int) -> World:
    play.ledger.amend_run(RUN, later_stage(first_step), FINGERPRINT)
    return world.spend("amend")


def _ack_too_much(play: Play, world: World, number: int) -> World | None:
    run = play.run
    if run.attempt is None:
        return None
    play.ledger.record_acks(run.uid, run.attempt.key, {number: run.sealed_step + 1})
    return world.spend("wrong_ack")


def _restore(play: Play, world: World) -> World:
    play.ledger.state = world.backup
    restores = world.restores + 1
    world = replace(world, backup=None, restores=restores, promised=frozenset()).spend("restore")
    if play.scenario.partitioned:  # jobs are cut off, and what they said is still on its way
        return replace(world, jobs=(None,) * len(world.jobs))
    return replace(world, under_way=frozenset())


def _idle(play: Play, world: World) -> World:
    """A lease's time goes by after the last rank is gone, and servers go on renewing what they hold."""
    play.ledger.now = world.now + LEASE_S / 2
    play.servers.renew(trainer.held_streams(world))
    after = replace(world, now=world.now + LEASE_S).spend("idle")
    attempt = play.run.attempt
    if attempt is not None and attempt.lease_expire_time > after.now:
        raise ViolationError(f"nobody streams attempt {attempt.number}, and a lease's time later it is still alive")
    return after


def _told(message: Message) -> str:
    who = f"rank {message.rank} of attempt {message.attempt}"
    if message.kind == "close":
        return f"the close of {message.stream_id}"
    if message.kind == "open":
        return f"a copy of an open of {who} at step {message.step}"
    if message.kind == "ack":
        return f"the ack of {who} for step {message.step}"
    return f"the commit of step {message.cursor.step} by attempt {message.attempt}"
