"""Any sequence of calls has the effect on the database that it has on a ledger of a few dictionaries."""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from dataserver.cursor import Cursor
from dataserver.database import Database
from dataserver.errors import DataServerError
from dataserver.ledger import AttemptKey, ProposedSeal
from dataserver.ledger.sql import SqlLedger
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source

SPEC = RunSpec(
    order=OrderSpec(sources=(Source(store="chat"),), max_length=8),
    batch=BatchSpec(step_samples=2, micro_batch_tokens=16),
)
RANKS = 2
STEPS = st.integers(0, 5)
PLANS = st.sampled_from("xy")


def cursor(step: int, plan: str = "x") -> Cursor:
    return Cursor(order_fingerprint="order", step=step, position=2 * step + (plan == "y"))


@dataclass
class Reference:
    """The rules once more, in the plainest words. A method returns whether the call is accepted."""

    last_attempt: int = 0
    attempt: int | None = None
    base: Cursor = field(default_factory=lambda: cursor(0))
    committed: Cursor = field(default_factory=lambda: cursor(0))
    head: int = 0
    ended: bool = False
    seals: dict[int, tuple[int, Cursor, bool]] = field(default_factory=dict)
    commits: dict[int, Cursor] = field(default_factory=dict)
    requests: set[int] = field(default_factory=set)
    acked: list[int] = field(default_factory=list)

    def known(self, version: int) -> Cursor | None:
        if version in self.commits:
            return self.commits[version]
        if version in self.seals:
            return self.seals[version][1]
        return cursor(0) if version == 0 else None

    def begin(self, base: Cursor | None, *, fresh: bool) -> bool:
        if base is None or (fresh and self.committed.step > 0):
            return False
        self.move(base)
        self.attempt = self.last_attempt
        self.base = base
        self.acked = [base.step] * RANKS
        return True

    def move(self, base: Cursor) -> None:
        self.last_attempt += 1
        leads = self.known(base.step) == base
        self.seals = {step: seal for step, seal in self.seals.items() if leads and step <= base.step}
        self.commits = {step: commit for step, commit in self.commits.items() if leads and step <= base.step}
        if base.step > 0:
            self.commits[base.step] = base
        self.committed, self.head, self.ended, self.attempt, self.acked = base, base.step, False, None, []

    def seal(self, attempt: int, step: int, end: Cursor) -> bool:
        if attempt != self.attempt:
            return False
        if step in self.seals:
            return self.seals[step][:2] == (attempt, end)
        if self.ended or step != self.head + 1:
            return False
        self.seals[step] = (attempt, end, step in self.requests)
        self.head = step
        return True

    def commit(self, attempt: int, made: Cursor) -> bool:
        sealed = self.seals.get(made.step)
        in_attempt = sealed is not None and sealed[:2] == (attempt, made)
        if attempt != self.attempt or not (in_attempt or made == self.base):
            return False
        self.commits[made.step] = made
        if made.step > self.committed.step:
            self.committed = made
        return True

    def ack(self, attempt: int, rank: int, step: int) -> bool:
        if attempt != self.attempt or step > self.head:
            return False
        self.acked[rank] = max(self.acked[rank], step)
        return True

    def request(self, version: int) -> str:
        """What becomes of a request; "" where it is refused."""
        sealed = self.seals.get(version)
        pending = sealed is not None and sealed[0] == self.attempt and sealed[2]
        if version > self.head:
            outcome = "" if self.ended else "accepted"
        elif pending:
            outcome = "accepted"
        elif self.ended:
            outcome = ""
        else:
            taken = self.attempt is not None and self.seals.get(self.head, (None,))[0] == self.attempt
            outcome = "accepted" if version == self.head and not taken else "already_sealed"
        if outcome == "accepted":
            self.requests.add(version)
        return outcome


class LedgerMachine(RuleBasedStateMachine):
    """Does everything to both."""

    database: Database
    runs = 0

    def __init__(self) -> None:
        super().__init__()
        LedgerMachine.runs += 1
        self.name = f"run-{LedgerMachine.runs}"
        self.ledger = SqlLedger(self.database, lease_s=30)
        self.uid = self.ledger.create_run(self.name, SPEC, "order", epoch_samples=10)[0].uid
        self.reference = Reference()
        self.keys: dict[int, AttemptKey] = {}

    def agree(self, expected: bool, call, *args, **kwargs):
        refusal = None
        result = None
        try:
            result = call(*args, **kwargs)
        except DataServerError as error:
            refusal = error
        assert (refusal is None) is expected, refusal
        return result

    def begin(self, expected: bool, **how):
        sizes = {"world_size": RANKS, "dp_world_size": RANKS, "batch": None, "holder": "h", "take_over": True}
        attempt = self.agree(expected, self.ledger.begin_attempt, self.name, **how, **sizes)
        if attempt is not None:
            self.keys[attempt.number] = attempt.key

    def number(self, behind: int) -> int:
        return max(1, self.reference.last_attempt - behind)

    def key(self, number: int) -> AttemptKey:
        """A rewind takes a number too, which is no attempt's."""
        return self.keys.get(number, AttemptKey(number=number, attempt_id="a rewind's"))

    @rule()
    def start(self):
        expected = self.reference.begin(cursor(0), fresh=True)
        self.begin(expected, resume=False, cursor=None, version=None)

    @rule(step=STEPS, plan=PLANS)
    def resume_from_a_checkpoint(self, step, plan):
        base = cursor(step, plan)
        self.begin(self.reference.begin(base, fresh=False), resume=True, cursor=base, version=None)

    @rule(version=STEPS)
    def resume_by_version(self, version):
        expected = self.reference.begin(self.reference.known(version), fresh=False)
        self.begin(expected, resume=True, cursor=None, version=version)

    @rule(version=STEPS)
    def rewind(self, version):
        base = self.reference.known(version)
        if base is not None:
            self.reference.move(base)
        self.agree(base is not None, self.ledger.rewind_run, self.name, version)

    @precondition(lambda self: self.reference.last_attempt)
    @rule(behind=st.integers(0, 1), ahead=st.integers(-1, 2), plan=PLANS)
    def seal(self, behind, ahead, plan):
        attempt, step = self.number(behind), self.reference.head + ahead
        if step < 1:
            return
        end = cursor(step, plan)
        proposed = ProposedSeal(
            step=step, end=end, plan_digest=plan, planner_version=1, last=False, end_of_run=False, stages="order"
        )
        self.agree(self.reference.seal(attempt, step, end), self.ledger.seal, self.uid, self.key(attempt), proposed)

    @precondition(lambda self: self.reference.attempt)
    @rule()
    def end(self):
        state = self.reference
        before = state.commits.get(state.head) or (
            state.seals[state.head][1] if state.head in state.seals else state.base
        )
        proposed = ProposedSeal(
            step=state.head + 1,
            end=before,
            plan_digest="",
            planner_version=1,
            last=False,
            end_of_run=True,
            stages="order",
        )
        self.ledger.seal(self.uid, self.key(state.attempt), proposed)
        state.ended = True

    @precondition(lambda self: self.reference.last_attempt)
    @rule(behind=st.integers(0, 1), step=STEPS, plan=PLANS)
    def commit(self, behind, step, plan):
        attempt, made = self.number(behind), cursor(step, plan)
        self.agree(
            self.reference.commit(attempt, made), self.ledger.commit_cursor, self.name, self.key(attempt), made, "uri"
        )

    @precondition(lambda self: self.reference.last_attempt)
    @rule(behind=st.integers(0, 1), rank=st.integers(0, RANKS - 1), step=STEPS)
    def ack(self, behind, rank, step):
        attempt = self.number(behind)
        expected = self.reference.ack(attempt, rank, step)
        self.agree(expected, self.ledger.record_acks, self.uid, self.key(attempt), {rank: step})

    @rule(version=STEPS)
    def request(self, version):
        expected = self.reference.request(version)
        answer = self.agree(bool(expected), self.ledger.request_sync, self.name, version)
        assert answer is None or answer.outcome == expected

    @invariant()
    def stand_alike(self):
        run, state = self.ledger.get_run(self.name), self.reference
        assert (run.last_attempt, run.attempt.number if run.attempt else None) == (state.last_attempt, state.attempt)
        assert (run.committed, run.sealed_step, run.ended) == (state.committed, state.head, state.ended)
        assert list(run.acked_steps) == state.acked
        found = {step: self.ledger.get_seal(self.uid, step) for step in range(1, 9)}
        seals = {step: (s.attempt, s.end, s.sync_weights) for step, s in found.items() if s and not s.end_of_run}
        assert seals == state.seals
        assert {c.cursor.step: c.cursor for c in self.ledger.list_commits(self.name, 99)} == state.commits


@pytest.mark.parametrize(
    "examples", [pytest.param(10), pytest.param(400, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)
def test_the_ledger_does_what_the_reference_does(database, examples):
    machine = type("Machine", (LedgerMachine,), {"database": database})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
