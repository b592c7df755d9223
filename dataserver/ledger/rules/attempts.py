"""Rules 1 to 5 and 10: who may begin, open and go on, and from where.

Small pure functions over snapshots of rows. Each says which counterexample it closes: `tests/model` explores the
ledger's states with all of them, and takes each away once to find it. Callers reach them through
this module's name, so that a test can take one away.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from dataserver.errors import (
    AlreadyCommittedError,
    AttemptAliveError,
    AttemptMismatchError,
    HolderFencedError,
    StaleAttemptError,
)
from dataserver.ledger.interface import Attempt
from dataserver.ledger.records import OpenRequest, RankRow, RunRow
from dataserver.ledger.steps import AttemptKey


def next_attempt(last_attempt: int) -> int:
    """Rule 1: numbers increase and are never reused.

    Else a launcher that counts its restarts from 0 again is taken for the attempt before it, whose
    delayed acks and opens then count for the new one.
    """
    return last_attempt + 1


def refuse_mismatched_open(run: RunRow, attempt: Attempt, request: OpenRequest) -> None:
    """Rule 2: an open matches the attempt's row and names a step that the attempt can give.

    Opens never rewind: else two ranks that open one after the other have step 1 sealed twice, with
    different flags, and meet in different collectives. A rank or step outside the row would skip.
    """
    problem = ""
    if request.world_rank >= attempt.world_size:
        problem = f"world_rank {request.world_rank} is not below its world_size {attempt.world_size}"
    elif request.dp_rank >= attempt.dp_world_size:
        problem = f"dp_rank {request.dp_rank} is not below its dp_world_size {attempt.dp_world_size}"
    elif request.next_step <= attempt.base.step:
        problem = (
            f"next_step {request.next_step} lies before its first step {attempt.base.step + 1}; opens never rewind"
        )
    elif request.next_step > run.sealed_step + 1:
        problem = f"next_step {request.next_step} skips: the next step to be sealed is {run.sealed_step + 1}"
    if problem:
        raise AttemptMismatchError(
            f"open of run {run.name!r} does not match attempt {attempt.number}: {problem}", attempt=attempt.number
        )


def refuse_repeated_step(run: RunRow, rank: RankRow, request: OpenRequest) -> None:
    """Rules 2 and 10: a rank that acknowledged a step never asks for it again.

    Else a delayed duplicate of an old open moves the rank's stream back over samples that are in
    its weights already.
    """
    if request.next_step <= rank.acked_step:
        raise AttemptMismatchError(
            f"rank {rank.world_rank} of run {run.name!r} asks for step {request.next_step} but has acknowledged step "
            f"{rank.acked_step}: go on with step {rank.acked_step + 1}, or begin a new attempt",
            acked_step=rank.acked_step,
        )


def refuse_other_dp_rank(run: RunRow, attempt: Attempt, ranks: Sequence[RankRow], request: OpenRequest) -> None:
    """Rule 10: every dp rank is read by exactly `world_size / dp_world_size` ranks, always the same ones.

    Else all ranks can open as dp rank 0, acknowledge every step, and the samples of dp rank 1 count
    as consumed though nobody had them.
    """
    known = ranks[request.world_rank].dp_rank
    if known is not None and known != request.dp_rank:
        raise AttemptMismatchError(
            f"rank {request.world_rank} of run {run.name!r} opened as dp_rank {known} before and opens "
            f"as {request.dp_rank} now"
        )
    share = attempt.world_size // attempt.dp_world_size
    others = [r.world_rank for r in ranks if r.dp_rank == request.dp_rank and r.world_rank != request.world_rank]
    if len(others) >= share:
        raise AttemptMismatchError(
            f"rank {request.world_rank} of run {run.name!r} opens as dp_rank {request.dp_rank}, which ranks {others} "
            f"have taken: each of {attempt.dp_world_size} dp ranks belongs to {share} of {attempt.world_size} ranks"
        )


def refuse_stale_attempt(run: RunRow, attempt: AttemptKey) -> None:
    """Rule 3: a lower attempt is refused for good.

    Else a rank that was thought dead commits or acknowledges into a run that was rewound under it.
    """
    number = attempt.number
    current = run.current_attempt
    if current is not None and number == current.number:
        refuse_namesake(run, attempt)
        return
    if number > run.last_attempt or number < 1:
        raise AttemptMismatchError(
            f"run {run.name!r} has no attempt {number}: the highest is {run.last_attempt}; begin one", attempt=number
        )
    if current is None:
        after = f"the run was rewound, which fenced all attempts up to {run.last_attempt}"
    else:
        after = f"attempt {current} is the current one"
    raise StaleAttemptError(
        f"attempt {number} of run {run.name!r} is over: {after}. Stop this trainer; its steps no longer count",
        attempt=number,
        current_attempt=0 if current is None else current.number,
    )


def refuse_namesake(run: RunRow, attempt: AttemptKey) -> None:
    """Rule 1: one number can name two attempts, one id cannot; `attempt` has the current number.

    Numbers repeat when a run is deleted and created again, and when the ledger is restored from an older copy. Else a
    rank that was cut off meanwhile opens, acknowledges and commits into a run that never gave it anything.
    """
    current = run.current_attempt
    if current is None or attempt.attempt_id == current.attempt_id:
        return
    raise StaleAttemptError(
        f"attempt {attempt} of run {run.name!r} is another one by now: it has id {current.attempt_id}, this trainer's "
        f"has id {attempt.attempt_id!r}; the run was deleted and created again, or its ledger restored from an older "
        "copy. Stop this trainer; its steps no longer count",
        attempt=attempt.number,
        current_attempt=current.number,
    )


def current_attempt(run: RunRow) -> AttemptKey:
    """The attempt that is current, for callers that name none."""
    if run.current_attempt is None:
        raise StaleAttemptError(
            f"run {run.name!r} has no attempt: {'it was rewound' if run.last_attempt else 'none was begun'}; begin one"
        )
    return run.current_attempt


def lease_end(begin_time: float, stream_leases: Sequence[float], lease_s: float) -> float:
    """Rule 3: until when an attempt is alive; closed streams free it at once, silence after `lease_s`.

    `stream_leases` has a time for each stream that is open or lapsed, the lease's end, and for the last one of each
    rank that was closed, when. Before any open the attempt has `lease_s` from its beginning.
    """
    return max(stream_leases, default=begin_time + lease_s)


def refuse_live_attempt(run: RunRow, attempt: Attempt | None, now: float, *, take_over: bool) -> None:
    """Rule 3: a live attempt is displaced only on demand, whoever asks, its own holder too.

    Else two trainers under one name, each restarted by its supervisor, rewind each other for ever.
    """
    if attempt is None or take_over or attempt.lease_expire_time <= now:
        return
    raise AttemptAliveError(
        f"attempt {attempt.number} of run {run.name!r} is alive: {attempt.holder!r} holds it since "
        f"{_clock(attempt.begin_time)}, at least until {_clock(attempt.lease_expire_time)}. Stop that trainer, wait "
        "until then, or take over, which ends it",
        attempt=attempt.number,
        holder=attempt.holder,
        lease_expire_time=f"{attempt.lease_expire_time:.3f}",
        wait_s=f"{attempt.lease_expire_time - now:.3f}",
    )


def fences_holder(attempt: Attempt | None, holder: str, now: float) -> bool:
    """Rule 3: whether a new attempt of `holder` fences the holder of `attempt` for ever: it was alive."""
    return attempt is not None and attempt.holder != holder and attempt.lease_expire_time > now


def refuse_fenced_holder(run: RunRow, holder: str, *, fenced: bool) -> None:
    """Rule 3: a launcher instance that was displaced by another may not begin again.

    Else two supervised trainers that both take over fence each other for ever, and no step is made.
    """
    if fenced:
        raise HolderFencedError(
            f"{holder!r} was displaced from run {run.name!r} by another launcher and may not begin again: "
            "if it is to have the run after all, start it anew, as another instance",
            holder=holder,
        )


def refuse_start_over_commits(run: RunRow) -> None:
    """Rule 5: fresh weights do not begin on a run that has committed steps.

    Else a lost checkpoint directory silently throws away the run's work.
    """
    if run.committed.step > 0:
        raise AlreadyCommittedError(
            f"run {run.name!r} has committed step {run.committed.step}: resume from its checkpoint, rewind the run to "
            "version 0, or begin a run of another name",
            committed_step=run.committed.step,
        )


def refuse_live_delete(run: RunRow, attempt: Attempt | None, now: float) -> None:
    """A run is not deleted under a trainer that works on it."""
    if attempt is not None and attempt.lease_expire_time > now:
        raise AttemptAliveError(
            f"run {run.name!r} is not deleted: attempt {attempt.number} of {attempt.holder!r} is alive, at least until "
            f"{_clock(attempt.lease_expire_time)}. Stop that trainer first",
            attempt=attempt.number,
            holder=attempt.holder,
        )


def _clock(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(sep=" ", timespec="seconds")
