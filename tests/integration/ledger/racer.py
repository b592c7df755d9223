"""One of several processes on one ledger: does what a line of its input says, and answers with a line of JSON.

open URL | create NAME | begin HOLDER TAKE_OVER | seal UID ATTEMPT STEP DIGEST | request STEP |
ack UID ATTEMPT RANK STEP
"""

import json
import sys
from collections.abc import Iterator

from dataserver.cursor import Cursor
from dataserver.errors import DataServerError
from dataserver.ledger import Ledger, ProposedSeal, open_ledger
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source

SPEC = RunSpec(
    order=OrderSpec(sources=(Source(store="chat"),), max_length=8),
    batch=BatchSpec(step_samples=2, micro_batch_tokens=16),
)


def act(ledger: Ledger, verb: str, words: list[str]) -> object:
    if verb == "create":
        run, created = ledger.create_run(words[0], SPEC, "order", epoch_samples=10)
        return {"uid": run.uid, "created": created}
    if verb == "begin":
        attempt = ledger.begin_attempt(
            "run",
            resume=False,
            cursor=None,
            version=None,
            world_size=2,
            dp_world_size=2,
            batch=None,
            holder=words[0],
            take_over=words[1] == "True",
        )
        return {"number": attempt.number, "holder": attempt.holder}
    if verb == "seal":
        step = int(words[2])
        proposed = ProposedSeal(
            step=step,
            end=Cursor(order_fingerprint="order", step=step, position=2 * step),
            plan_digest=words[3],
            planner_version=1,
            last=False,
            end_of_run=False,
            stages="order",
        )
        seal = ledger.seal(words[0], ledger.get_attempt("run", int(words[1])).key, proposed)
        return {"digest": seal.plan_digest, "flag": seal.sync_weights}
    if verb == "request":
        return ledger.request_sync("run", int(words[0])).outcome
    if verb == "ack":
        attempt = ledger.get_attempt("run", int(words[1])).key
        return ledger.record_acks(words[0], attempt, {int(words[2]): int(words[3])}).acked_steps
    raise ValueError(verb)


def answers() -> Iterator[object]:
    ledger: Ledger | None = None
    for line in sys.stdin:
        verb, *words = line.split()
        try:
            if verb == "open":
                if ledger is not None:
                    ledger.close()
                ledger = open_ledger(words[0], lease_s=30)
                yield "open"
            else:
                assert ledger is not None
                yield act(ledger, verb, words)
        except DataServerError as error:
            yield {"error": type(error).__name__, "message": error.message}


for answer in answers():
    print(json.dumps(answer), flush=True)
