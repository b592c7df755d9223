"""What a trainer job does: begin, open, receive, meet in the all-reduce, acknowledge, checkpoint, end."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace

from dataserver.cursor import Cursor
from dataserver.errors import (
    AttemptMismatchError,
    OutdatedPlanError,
    PlanMismatchError,
    StaleAttemptError,
    VersionNotFoundError,
)
from dataserver.ledger import Attempt
from ledgermodel.planning import fault_of, run_spec
from ledgermodel.play import Play, ViolationError
from ledgermodel.serving import RUN
from ledgermodel.world import Checkpoint, Job, Message, Rank, World

WORLD_SIZE = 2
FRESH = Checkpoint(cursor=Cursor(order_fingerprint=""), weights=())


def begin(play: Play, world: World, holder: int, checkpoint: Checkpoint) -> World:
    """Begin an attempt with the checkpoint's weights, or fresh ones."""
    scenario, before = play.scenario, play.run
    fresh = checkpoint is FRESH
    sizes, budgets = scenario.dp_world_sizes, scenario.step_samples
    batch = None
    if budgets:
        budget = budgets[min(before.last_attempt, len(budgets) - 1)]
        batch = run_spec(scenario.steps, scenario.lookahead, budget).batch
    attempt = play.ledger.begin_attempt(
        RUN,
        resume=not fresh,
        cursor=None if fresh or scenario.by_version else checkpoint.cursor,
        version=None if fresh else checkpoint.cursor.step,
        world_size=WORLD_SIZE,
        dp_world_size=sizes[min(before.last_attempt, len(sizes) - 1)],
        batch=batch,
        holder=f"launcher {holder}",
        take_over=scenario.take_over,
    )
    if fresh and before.committed.step > 0:
        raise ViolationError(
            f"fresh weights begin though step {before.committed.step} is committed: its work is thrown away"
        )
    old = before.attempt
    if old is not None and old.holder != attempt.holder and old.lease_expire_time > world.now:
        if not scenario.take_over:
            raise ViolationError(f"attempt {old.number} is alive and is displaced, though nobody asked to take over")
        world = replace(world, displacements=world.displacements + 1)
        if world.displacements >= scenario.holders:
            raise ViolationError(
                f"{scenario.holders} launchers displaced each other {world.displacements} times: no end of it"
            )
    _refuse_displaced_stream(world, old, take_over=scenario.take_over)
    if scenario.ways:
        _refuse_other_way(play, attempt.base, checkpoint.way)
    if fault := fault_of(checkpoint.weights, attempt.base):
        raise ViolationError(f"attempt {attempt.number} begins at step {attempt.base.step}, but {fault}")
    job = Job(
        attempt=attempt.key,
        base=attempt.base,
        dp_world_size=attempt.dp_world_size,
        cursor=attempt.base,
        weights=checkpoint.weights,
        ranks=(Rank(applied=attempt.base.step),) * WORLD_SIZE,
        saved_step=attempt.base.step,
        way=checkpoint.way,
    )
    return world.with_job(holder, job)


def open_stream(
    play: Play, world: World, holder: int, number: int, server: int, *, skew: int = 0, dp_rank: int | None = None
) -> World:
    """A rank opens its stream; `skew` and `dp_rank` make it a confused one."""
    job = world.jobs[holder]
    rank = job.ranks[number]
    next_step = (rank.receipts[-1].step if rank.receipts else job.step) + 1 + skew
    dp_rank = number % job.dp_world_size if dp_rank is None else dp_rank
    confused = skew != 0 or dp_rank != number % job.dp_world_size
    stream_id = stream_of(job, number, rank.opens + 1)
    try:
        play.servers.open(stream_id, job.attempt, number, dp_rank, next_step)
    except (StaleAttemptError, AttemptMismatchError):
        if confused:
            raise
        return world.with_job(holder, None)
    if world.may("duplicate"):
        world = world.send(
            Message(
                kind="open",
                attempt=job.attempt,
                rank=number,
                step=next_step,
                dp_rank=dp_rank,
                server=server,
                stream_id=stream_id,
            )
        )
    rank_fields = {"server": server, "opens": rank.opens + 1, "dp_rank": dp_rank, "next_step": next_step}
    return world.with_job(holder, job.with_rank(number, **rank_fields))


def stream_of(job: Job, number: int, opens: int) -> str:
    """Id of a rank's stream, by how many it opened."""
    return f"{job.attempt} {job.attempt.attempt_id}, rank {number}, stream {opens}"


def held_streams(world: World) -> tuple[str, ...]:
    """Ids of the streams that servers hold."""
    return tuple(
        stream_of(job, number, rank.opens)
        for job in world.jobs
        if job is not None
        for number, rank in enumerate(job.ranks)
        if rank.server is not None
    )


def reconnect(play: Play, world: World, holder: int, number: int) -> World:
    """A rank's connection breaks and it opens another stream; only then the server closes the first, perhaps twice."""
    job = world.jobs[holder]
    rank = job.ranks[number]
    closing = Message(kind="close", attempt=job.attempt, rank=number, stream_id=stream_of(job, number, rank.opens))
    return open_stream(play, world, holder, number, rank.server).send(closing)


def receive(play: Play, world: World, holder: int, number: int, ahead: int = 0) -> World | None:
    """A server gives a rank its next step, if pacing allows; `ahead` makes it a hasty server."""
    job = world.jobs[holder]
    rank = job.ranks[number]
    step = rank.next_step + ahead
    if not play.servers.paced(step) or (ahead and play.run.sealed_step >= rank.next_step):
        return None
    attempt = play.ledger.get_attempt(RUN, job.attempt.number)
    try:
        receipt = play.servers.serve(rank.server, attempt, rank.dp_rank, step, world.known_by(rank.server))
    except StaleAttemptError:
        return world.with_job(holder, None)
    except OutdatedPlanError:
        return world.learn(rank.server, play.servers.first_step())
    except PlanMismatchError:
        # Its next open repeats this one's id: with a new id for each try there would be no end of states.
        return world.with_job(holder, job.with_rank(number, server=None, opens=rank.opens - 1))
    if receipt is None:
        return None
    first_step = play.servers.first_step()
    stage = int(0 < first_step <= receipt.step)
    if receipt.end.stage != stage and not receipt.ended:
        raise ViolationError(f"step {receipt.step} of stage {stage} is sent with samples of stage {receipt.end.stage}")
    if receipt.step in world.promised and not receipt.flag and not receipt.ended:
        raise ViolationError(
            f"version {receipt.step} was requested before a byte of its step left, and its flag is not set"
        )
    slowest = min(r.applied for r in job.ranks)
    if play.scenario.acks and receipt.step > slowest + 1 and not receipt.ended:
        raise ViolationError(f"step {receipt.step} is sent while a rank has applied only step {slowest}")
    job = job.with_rank(number, receipts=(*rank.receipts, receipt), next_step=step + 1)
    _refuse_disagreement(job)
    return world.with_job(holder, job)


def reduce(play: Play, world: World, holder: int) -> World:
    """All ranks hold their next step: they meet in the all-reduce, and the step is in the weights."""
    job = world.jobs[holder]
    receipt = job.ranks[0].receipts[0]
    if receipt.ended:
        return replace(world, finished=True)
    share = WORLD_SIZE // job.dp_world_size
    counted = Counter(sample for rank in job.ranks for sample in rank.receipts[0].samples)
    if uneven := sorted(sample for sample, count in counted.items() if count % share):
        raise ViolationError(
            f"samples {uneven} of step {receipt.step} reached some of their {share} sibling ranks only"
        )
    new = [sample for sample, count in counted.items() for _ in range(count // share)]
    weights = tuple(sorted((*job.weights, *new)))
    if fault := fault_of(weights, receipt.end):
        raise ViolationError(f"after step {receipt.step} of attempt {job.attempt} {fault}")
    ranks = tuple(
        replace(rank, receipts=rank.receipts[1:], applied=rank.applied if play.scenario.acks else receipt.step)
        for rank in job.ranks
    )
    way = (*job.way, receipt.end) if play.scenario.ways else ()
    job = replace(job, cursor=receipt.end, weights=weights, ranks=ranks, last=receipt.last, way=way)
    return world.with_job(holder, job)


def apply(play: Play, world: World, holder: int, number: int) -> World:
    """A rank is through with its optimizer step, and acknowledges it."""
    job = world.jobs[holder]
    world = world.with_job(holder, job.with_rank(number, applied=job.step))
    return _send(play, world, Message(kind="ack", attempt=job.attempt, rank=number, step=job.step))


def checkpoint(play: Play, world: World, holder: int, *, wrong: Cursor | None = None) -> World:
    """Save weights and cursor in one, then tell the ledger; `wrong` is what a confused trainer commits."""
    job = world.jobs[holder]
    saved = Checkpoint(cursor=job.cursor, weights=job.weights, way=job.way)
    kept = tuple(old for old in world.checkpoints if old.cursor.step < job.step)
    world = replace(world, checkpoints=(*kept, saved)).with_job(holder, replace(job, saved_step=job.step))
    return _send(play, world, Message(kind="commit", attempt=job.attempt, cursor=wrong or job.cursor))


def leave(world: World, holder: int, number: int) -> World:
    """A rank has finished the last step, finds the server gone, and exits."""
    job = world.jobs[holder].with_rank(number, left=True, server=None)
    _refuse_disagreement(job)
    world = world.with_job(holder, job)
    return replace(world, finished=all(rank.left for rank in job.ranks))


def deliver(play: Play, message: Message) -> None:
    """A message arrives."""
    if message.kind == "open":
        play.servers.open(message.stream_id, message.attempt, message.rank, message.dp_rank, message.step)
    elif message.kind == "close":
        play.servers.close(message.stream_id)
    elif message.kind == "ack":
        play.ledger.record_acks(play.run.uid, message.attempt, {message.rank: message.step})
    else:
        before = play.run
        after = play.ledger.commit_cursor(RUN, message.attempt, message.cursor, "")
        if after.committed.step < before.committed.step:
            raise ViolationError(
                f"a commit of step {message.cursor.step} moves the run down from committed step {before.committed.step}"
            )


def _send(play: Play, world: World, message: Message) -> World:
    if play.scenario.delayed:
        return world.send(message)
    deliver(play, message)
    return world


def _refuse_displaced_stream(world: World, old: Attempt | None, *, take_over: bool) -> None:
    """Nobody's stream is open, and its lease renewed, in an attempt that counts as over."""
    for job in world.jobs:
        if job is None or take_over or old is None or job.attempt != old.key or old.lease_expire_time > world.now:
            continue
        if any(rank.server is not None for rank in job.ranks) and not world.silent:
            raise ViolationError(f"attempt {old.number} is displaced unasked though a rank streams")


def _refuse_other_way(play: Play, base: Cursor, way: tuple[Cursor, ...]) -> None:
    """What the ledger knows of the steps before `base` is how the weights came there."""
    for step, ours in enumerate(way[: max(base.step - 1, 0)], 1):
        with suppress(VersionNotFoundError):
            theirs, _ = play.ledger.cursor_at(RUN, step)
            if theirs != ours:
                raise ViolationError(
                    f"weights of version {base.step} went through step {step} at position {ours.position}, the ledger "
                    f"says position {theirs.position}: who resumes by that version repeats or skips samples"
                )


def _refuse_disagreement(job: Job) -> None:
    """What ranks hold for their next all-reduce must be the same; none may have left while others go on."""
    heads = [rank.receipts[0].compared for rank in job.ranks if rank.receipts]
    if len(heads) == len(job.ranks) and len(set(heads)) > 1:
        raise ViolationError(f"ranks meet in one all-reduce with {' and '.join(map(str, heads))}")
    if any(rank.left for rank in job.ranks) and any(head[-1] == "step" for head in heads):
        raise ViolationError(f"a rank waits in step {heads[0][0]} for one that has left after the last step")
