"""Micro-batches of a step that is ready follow those of the step before, each step once and in order."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from dataserver.batching.encode import encode_planned
from dataserver.batching.table import SourceTable
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, LongRows, Shuffle
from dataserver.sampling.union import plain_union
from dataserver.stores import open_store
from dataserver.streaming.credits import Credits
from dataserver.streaming.encodings import ENCODED_AHEAD, Encodings, cut
from dataserver.streaming.fetches import Fetches
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.supply import ReadyStep, Stamp
from dataserver.streaming.threads import Threads
from dataserver.testing import write_store

BATCH = BatchSpec(step_samples=12, micro_batch_tokens=64)

# Too little for two micro-batches: each is a group.
LIMIT = 1


@dataclass
class Steps:
    """A supply as far as encodings know it. `asked`: rounds of steps, in the order in which they were to be encoded."""

    batch: BatchSpec
    inner: Fetches
    dp_rank: int = 0
    next_ready: ReadyStep | None = None
    asked: list[tuple[int, range]] = field(default_factory=list)

    @property
    def fetches(self):
        return self

    def together(self, plan, batch, limit_bytes):
        return self.inner.together(plan, batch, limit_bytes)

    async def encode(self, plan, *, rounds, **place):
        self.asked.append((plan.step, rounds))
        return await self.inner.encode(plan, rounds=rounds, **place)

    def ready_next(self):
        return self.next_ready


def credits_of(*grants):
    granted = Credits()
    for count in grants:
        granted.grant(count)
    return granted


@pytest.fixture
def served(tmp_path):
    """Two steps of a mapped store, and what encodes them."""
    threads = Threads(Metrics(CollectorRegistry()), ledger_wait_s=60, plan_wait_s=60)
    path = write_store(tmp_path / "store", lengths=[20 + number % 30 for number in range(40)])
    with open_store(path, index_dir=tmp_path / "index") as store:
        table = SourceTable([store.view(64, LongRows.TRUNCATE)], token_bytes=store.token_bytes)
        planner = Planner.of_order(plain_union(table.sizes, seed=1, shuffle=Shuffle.FULL), table, "f")
        first = planner.plan(planner.initial_cursor(), BATCH, 1)
        second = planner.plan(first.end, BATCH, 1)
        ready = [ReadyStep(plan=plan, stamp=Stamp(sync_weights=plan is second)) for plan in (first, second)]
        yield table, ready, Steps(BATCH, Fetches([table], threads))
    threads.close()


def expected(table, ready):
    place = {"dp_rank": 0, "alignment": 1, "pad_to": 0, "sync_weights": ready.stamp.sync_weights}
    return [
        encode_planned(ready.plan, table, rounds=range(index, index + 1), **place)
        for index in range(len(ready.plan.rounds))
    ]


@pytest.mark.parametrize("known_early", [True, False])
async def test_two_steps_are_encoded_once_and_in_order(served, known_early):
    table, (first, second), steps = served
    encodings = Encodings(steps, credits_of(16), LIMIT)
    encodings.begin(first, first.plan)
    steps.next_ready = second if known_early else None
    found = [await encodings.take() for _ in first.plan.rounds]
    encodings.begin(second, second.plan)
    steps.next_ready = None
    found += [await encodings.take() for _ in second.plan.rounds]
    assert found == expected(table, first) + expected(table, second)
    await encodings.close()
    assert len(steps.asked) == len(found)


async def test_a_step_that_is_ready_is_begun_while_the_one_before_is_sent_and_none_before_it_is_ready(served):
    _, (first, second), steps = served
    rounds = len(first.plan.rounds)
    assert rounds > ENCODED_AHEAD
    encodings = Encodings(steps, credits_of(16), LIMIT)
    encodings.begin(first, first.plan)
    for _ in range(rounds - 1):
        await encodings.take()
    assert {step for step, _ in steps.asked} == {1}
    steps.next_ready = second
    await encodings.take()
    await asyncio.sleep(0)
    assert steps.asked[rounds:] == [(2, range(n, n + 1)) for n in range(ENCODED_AHEAD)]
    await encodings.close()
    await encodings.close()


@given(
    rounds=st.integers(1, 60), together=st.integers(1, 20), credits_left=st.integers(-90, 90), grant=st.integers(1, 40)
)
def test_groups_cover_a_step_and_none_is_sent_in_two_parts(rounds, together, credits_left, grant):
    groups = cut(rounds, together, credits_left=credits_left, grant=grant)
    assert [index for group in groups for index in group] == list(range(rounds))
    assert max(map(len, groups)) <= together
    ends_of_grants = set(range(credits_left - 200 * grant, rounds + 1, grant))
    for group in groups:
        assert group.start < group.stop
        assert not ends_of_grants & set(group[1:])
    # As few as that allows: every grant in as few groups as they hold of it.
    assert len(groups) <= -(-grant // together) * (rounds // grant + 2)


def test_groups_of_the_next_step_go_on_where_those_of_the_last_ended():
    sizes = [len(group) for group in cut(21, 8, credits_left=16, grant=8)]
    assert sizes == [8, 8, 5]
    assert [len(group) for group in cut(21, 8, credits_left=16 - 21, grant=8)] == [3, 8, 8, 2]
