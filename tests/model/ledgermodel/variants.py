"""The ledger, or what stands around it, without one of its rules.

Most rules are functions in `dataserver.ledger.rules`: they are replaced by one that lets everything
pass. A rule that is no refusal has a documented variant here: the design that it was chosen over.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from dataserver.errors import UnavailableError
from dataserver.ledger import attempts, runs, schema, seals, streams
from dataserver.ledger.rules import attempts as attempt_rules
from dataserver.ledger.rules import branches
from dataserver.ledger.rules import cursors as cursor_rules
from dataserver.ledger.rules import stages as stage_rules
from dataserver.ledger.rules import steps as step_rules
from dataserver.planning.plan import Plan
from ledgermodel import planning
from ledgermodel.scenarios import (
    ACKED,
    ACKS,
    AMENDED,
    AMENDED_WINDOW,
    BRANCHES,
    CONFUSED,
    CRASH,
    EARLY,
    GARBLED,
    HASTY,
    HOLD,
    LOST,
    LOST_CLOSE,
    PACE,
    PARTITIONED,
    RECONNECT,
    REQUEST,
    RESHAPED,
    RESTORED,
    SHORT,
    SIBLINGS,
    SILENT_END,
    TAKE_OVER,
    TWO_LAUNCHERS,
    TWO_PLANNERS,
    WINDOW,
    Scenario,
)
from ledgermodel.serving import Servers

Change = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is changed, where, and the fault that comes of it (a regular expression)."""

    rule: int
    name: str
    change: Change
    scenario: Scenario
    fault: str


def without(module: Any, name: str, instead: Any = None) -> Change:
    return lambda patch: patch.setattr(module, name, lambda *_args, **_kwargs: instead)


def around(module: Any, name: str, wrapper: Callable[..., Any]) -> Change:
    """Replace a function by `wrapper(original, *args, **kwargs)`."""

    def change(patch: pytest.MonkeyPatch) -> None:
        original = getattr(module, name)
        patch.setattr(module, name, wraps(original)(lambda *args, **kwargs: wrapper(original, *args, **kwargs)))

    return change


def _numbers_are_reused(patch: pytest.MonkeyPatch) -> None:
    """As a launcher that counts restarts from 0 would: each attempt is number 1 and overwrites the last."""

    def overwrite(original: Any, connection: Any, run: Any, attempt: Any, dropped: str) -> None:
        connection.execute(delete(schema.attempts).where(schema.attempts.c.run_uid == run.uid))
        original(connection, run, attempt, dropped)

    without(attempt_rules, "next_attempt", 1)(patch)
    around(attempts, "_write_attempt", overwrite)(patch)


def _opens_rewind(original: Any, connection: Any, run: Any, attempt: Any, request: Any, **times: float) -> None:
    """An open makes its next step the next to be sealed."""
    original(connection, run, attempt, request, **times)
    seals_of_run = (schema.seals.c.run_uid == run.uid, schema.seals.c.step >= request.next_step)
    connection.execute(delete(schema.seals).where(*seals_of_run))
    runs.change(connection, run, sealed_step=request.next_step - 1)


def _ledger_wins(original: Any, connection: Any, run: Any, request: Any) -> Any:
    base = original(connection, run, request)
    return run.committed if request.cursor is not None else base


def _ahead_is_refused(original: Any, connection: Any, run: Any, request: Any) -> Any:
    base = original(connection, run, request)
    if base.step > run.committed.step:
        raise UnavailableError("the cursor is ahead of the ledger")
    return base


def _deal_is_dropped(original: Any, connection: Any, run: Any, request: Any) -> Any:
    """Inside a window, count the samples that are done and deal the rest anew."""
    base = original(connection, run, request)
    if base.window is None:
        return base
    begin = replace(base, step=base.step - base.window.steps_done, window=None)
    done = 0
    for _ in range(base.window.steps_done):
        planned = planning.plan(begin, run.read_spec().batch, base.window.deal.dp_world_size)
        assert isinstance(planned, Plan)
        done, begin = done + len(planned.samples), planned.end
    return replace(base, window=None, position=base.position + done)


def _flag_is_computed_for_each(
    original: Any, connection: Any, run: Any, attempt: int, proposed: Any, now: float
) -> Any:
    seal = original(connection, run, attempt, proposed, now)
    return replace(seal, sync_weights=seals._sync_weights(connection, run, proposed, now))


def _acks_commit(original: Any, connection: Any, run: Any, attempt: int, acks: Any) -> Any:
    progress = original(connection, run, attempt, acks)
    consumed = seals.read_seal(connection, run.uid, min(progress.acked_steps))
    if consumed is not None:
        runs.change(connection, run, committed=consumed.end.to_json())
    return progress


def _opening_seals(original: Any, self: Servers, stream_id: str, attempt: Any, *rank: int) -> None:
    original(self, stream_id, attempt, *rank)
    row = self._ledger.get_attempt("run", attempt.number)
    self.serve(0, row, rank[1], rank[2])


def _renewed_by_server(_original: Any, connection: Any, _stream_ids: Any, lease_expire_time: float) -> None:
    """A server that lives renews whatever was ever opened at it."""
    streams_ = schema.streams
    connection.execute(update(streams_).where(~streams_.c.closed).values(lease_expire_time=lease_expire_time))


def _counted_by_rank(original: Any, connection: Any, stream_id: str, now: float) -> None:
    """A close ends one stream of the rank, whichever it came from."""
    streams_ = schema.streams
    ranks = select(streams_.c.world_rank).where(streams_.c.stream_id == stream_id)
    query = select(streams_.c.stream_id).where(streams_.c.world_rank.in_(ranks), ~streams_.c.closed)
    for one in sorted(connection.execute(query).scalars())[:1]:
        original(connection, one, now)


def _end_is_not_sealed(original: Any, self: Servers, server: int, attempt: Any, *where: int) -> Any:
    dp_rank, step, *_ = where
    begin = self._begin(self._ledger.get_run("run").uid, attempt, step)
    if begin is not None:
        proposed, _ = self._propose(server, attempt, begin, dp_rank)
        if proposed.end_of_run:
            return self.receipt(proposed, flag=False, samples=())
    return original(self, server, attempt, *where)


def _guess(original: Any, run: Any, version: int, known: Any, nearest: Any) -> Any:
    return known or run.committed


def _windows_are_passed_over(original: Any, run: Any, head: Any, first_step: int) -> None:
    original(run, replace(head, window=None), first_step)


MEET = "ranks meet in one all-reduce"
PACING = "is sent while a rank has applied only step 0"
STUCK = "dead end"

VARIANTS = (
    Variant(rule=1, name="attempt numbers are reused", change=_numbers_are_reused, scenario=ACKS, fault=PACING),
    Variant(
        rule=1,
        name="an attempt is its number",
        change=without(attempt_rules, "refuse_namesake"),
        scenario=PARTITIONED,
        fault=PACING,
    ),
    Variant(
        rule=2,
        name="an open rewinds",
        change=around(streams, "open_stream", _opens_rewind),
        scenario=REQUEST,
        fault=rf"{MEET} with \(1, .*False.* and \(1, .*True",
    ),
    Variant(
        rule=2,
        name="an open need not match the attempt",
        change=without(attempt_rules, "refuse_mismatched_open"),
        scenario=SIBLINGS,
        fault="reached some of their 2 sibling ranks only",
    ),
    Variant(
        rule=2,
        name="a rank may ask again for a step that it acknowledged",
        change=without(attempt_rules, "refuse_repeated_step"),
        scenario=EARLY,
        fault=MEET,
    ),
    Variant(
        rule=3,
        name="a lower attempt is heard",
        change=without(attempt_rules, "refuse_stale_attempt"),
        scenario=ACKS,
        fault=PACING,
    ),
    Variant(
        rule=3,
        name="a live attempt is displaced unasked",
        change=without(attempt_rules, "refuse_live_attempt"),
        scenario=TWO_LAUNCHERS,
        fault="is alive and is displaced",
    ),
    Variant(
        rule=3,
        name="a fenced launcher begins again",
        change=without(attempt_rules, "refuse_fenced_holder"),
        scenario=TAKE_OVER,
        fault="displaced each other 2 times: no end of it",
    ),
    Variant(
        rule=3,
        name="a server renews all that was ever opened at it",
        change=around(streams, "renew", _renewed_by_server),
        scenario=LOST_CLOSE,
        fault="nobody streams attempt 1, and a lease's time later it is still alive",
    ),
    Variant(
        rule=3,
        name="streams of a rank are counted and not named",
        change=around(streams, "close_stream", _counted_by_rank),
        scenario=RECONNECT,
        fault="is displaced unasked though a rank streams",
    ),
    Variant(
        rule=4,
        name="seals after the base survive",
        change=without(branches, "last_surviving_step", 10**9),
        scenario=RESHAPED,
        fault=STUCK,
    ),
    Variant(
        rule=4,
        name="steps before an unknown base survive",
        change=without(branches, "proven", instead=True),
        scenario=BRANCHES,
        fault="went through step 1 at position 2, the ledger says position 1",
    ),
    Variant(
        rule=5,
        name="fresh weights begin on committed steps",
        change=without(attempt_rules, "refuse_start_over_commits"),
        scenario=LOST,
        fault="fresh weights begin though step 1 is committed",
    ),
    Variant(
        rule=5,
        name="a cursor of another order is taken",
        change=without(cursor_rules, "refuse_foreign_cursor"),
        scenario=LOST,
        fault=STUCK,
    ),
    Variant(
        rule=5,
        name="an unknown version begins wherever the ledger stands",
        change=around(cursor_rules, "cursor_by_version", _guess),
        scenario=RESTORED,
        fault=r"begins at step \d, but samples .* lie after the cursor and are in the weights",
    ),
    Variant(
        rule=5,
        name="the ledger wins over the checkpoint",
        change=around(attempts, "_base", _ledger_wins),
        scenario=CRASH,
        fault="begins at step 0, but samples .* are in the weights",
    ),
    Variant(
        rule=5,
        name="a cursor ahead of the ledger is refused",
        change=around(attempts, "_base", _ahead_is_refused),
        scenario=CRASH,
        fault=STUCK,
    ),
    Variant(
        rule=5,
        name="a delayed commit moves the run down",
        change=around(step_rules, "committed_after", lambda _original, _committed, cursor: cursor),
        scenario=CRASH,
        fault="moves the run down from committed step 2",
    ),
    Variant(
        rule=6,
        name="a step is sealed before the one before it",
        change=without(step_rules, "refuse_gap"),
        scenario=HASTY,
        fault=f"{MEET}|are in no weights",
    ),
    Variant(
        rule=6,
        name="each server computes the flag when it serves",
        change=around(seals, "seal", _flag_is_computed_for_each),
        scenario=HOLD,
        fault=rf"{MEET} with \(1, .*False.* and \(1, .*True",
    ),
    Variant(
        rule=6,
        name="a replica serves another plan than the sealed one",
        change=without(step_rules, "refuse_other_plan"),
        scenario=TWO_PLANNERS,
        fault=rf"{MEET} with \(1, '(\w+)', .* and \(1, '\1x', ",
    ),
    Variant(
        rule=7,
        name="opening a stream seals ahead",
        change=around(Servers, "open", _opening_seals),
        scenario=REQUEST,
        fault="was requested before a byte of its step left",
    ),
    Variant(
        rule=9,
        name="the end of the run is not sealed",
        change=around(Servers, "serve", _end_is_not_sealed),
        scenario=SILENT_END,
        fault=rf"{MEET} .*'end of run'",
    ),
    Variant(
        rule=9,
        name="a step follows the last one",
        change=without(step_rules, "refuse_after_last"),
        scenario=SHORT,
        fault="waits in step 2 for one that has left after the last step",
    ),
    Variant(
        rule=10,
        name="two ranks open as one dp rank",
        change=without(attempt_rules, "refuse_other_dp_rank"),
        scenario=CONFUSED,
        fault="are in the weights twice",
    ),
    Variant(
        rule=10,
        name="one rank's ack is enough",
        change=around(step_rules, "consumed_step", lambda _original, acked, base: max(acked, default=base)),
        scenario=PACE,
        fault=PACING,
    ),
    Variant(
        rule=10,
        name="a rank acknowledges what was never sealed",
        change=without(step_rules, "refuse_wrong_ack"),
        scenario=PACE,
        fault=PACING,
    ),
    Variant(
        rule=11,
        name="an ack moves the durable position",
        change=around(streams, "record_acks", _acks_commit),
        scenario=ACKED,
        fault=STUCK,
    ),
    Variant(
        rule=11,
        name="any cursor may be committed",
        change=without(step_rules, "refuse_off_course_commit"),
        scenario=GARBLED,
        fault="begins at step 1, but samples .* are in the weights",
    ),
    Variant(
        rule=22,
        name="a step is sealed by a server that does not know its stage",
        change=without(stage_rules, "refuse_outdated_plan"),
        scenario=AMENDED,
        fault="of stage 1 is sent with samples of stage 0",
    ),
    Variant(
        rule=22,
        name="a stage begins with a step that is sealed",
        change=without(stage_rules, "refuse_early_stage"),
        scenario=AMENDED,
        fault=f"of stage 1 is sent with samples of stage 0|{STUCK}",
    ),
    Variant(
        rule=22,
        name="a stage begins inside a window",
        change=around(stage_rules, "refuse_early_stage", _windows_are_passed_over),
        scenario=AMENDED_WINDOW,
        fault=f"are in no weights|of stage 1 is sent with samples of stage 0|{STUCK}",
    ),
    Variant(
        rule=12,
        name="a resume deals the rest of a window anew",
        change=around(attempts, "_base", _deal_is_dropped),
        scenario=WINDOW,
        fault="in the weights twice|in no weights",
    ),
)
