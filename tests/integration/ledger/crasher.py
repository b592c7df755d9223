"""A process on an SQLite ledger that meets a fault: `full` (no more room in files) or `kill` (inside a transaction)."""

import os
import resource
import signal
import sys

from dataserver.cursor import Cursor
from dataserver.errors import UnavailableError
from dataserver.ledger import Attempt, AttemptKey, Ledger, ProposedSeal, events, open_ledger
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source

SPEC = RunSpec(
    order=OrderSpec(sources=(Source(store="chat"),), max_length=8),
    batch=BatchSpec(step_samples=2, micro_batch_tokens=16),
)


def begin(ledger: Ledger, holder: str, *, take_over: bool) -> Attempt:
    return ledger.begin_attempt(
        "run",
        resume=False,
        cursor=None,
        version=None,
        world_size=2,
        dp_world_size=2,
        batch=None,
        holder=holder,
        take_over=take_over,
    )


def seal(ledger: Ledger, uid: str, attempt: AttemptKey, step: int) -> None:
    end = Cursor(order_fingerprint="order", step=step)
    proposed = ProposedSeal(
        step=step, end=end, plan_digest="d", planner_version=1, last=False, end_of_run=False, stages="order"
    )
    ledger.seal(uid, attempt, proposed)


def fill_up(ledger: Ledger, uid: str, attempt: AttemptKey) -> None:
    """Seal until files may not grow, then let them grow again: no step is lost, none is half there."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, most))
    step = 1
    try:
        while True:
            seal(ledger, uid, attempt, step + 1)
            step += 1
    except UnavailableError as error:
        print(error.message)
    assert ledger.get_run("run").sealed_step == step
    assert ledger.get_seal(uid, step + 1) is None
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    seal(ledger, uid, attempt, step + 1)
    assert ledger.get_run("run").sealed_step == step + 1


def die_inside(ledger: Ledger) -> None:
    """Begin another attempt and be killed when all but its event is written."""
    events.record = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    begin(ledger, "b", take_over=True)


ledger = open_ledger(sys.argv[1], lease_s=30)
uid = ledger.create_run("run", SPEC, "order", epoch_samples=10)[0].uid
attempt = begin(ledger, "a", take_over=False).key
seal(ledger, uid, attempt, 1)
if sys.argv[2] == "full":
    fill_up(ledger, uid, attempt)
else:
    die_inside(ledger)
