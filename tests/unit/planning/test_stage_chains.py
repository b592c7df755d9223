"""Any stages after each other: every sequence of crashes gives the run that none would have given."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dataserver.cursor import Cursor
from dataserver.planning.planner import Planner
from dataserver.planning.stages import PlannedStage, earliest_first_step, place_of
from dataserver.run_spec import BatchSpec, OrderSpec, Source
from dataserver.sampling.build import sample_order
from dataserver.weighting import Stopping

SIZES = {"chat": 23, "code": 40, "math": 7}
STEPS = 14


@dataclass(frozen=True)
class Rows:
    rows: int

    @property
    def kept_tokens(self):
        return self.rows * 9

    def block_rows(self):
        return np.array([4] * (self.rows // 4) + [self.rows % 4], dtype=np.int64)


@st.composite
def order_specs(draw):
    names = draw(st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=3, unique=True))
    fields = {"shuffle": draw(st.sampled_from(["full", "block"])), "seed": 5, "max_length": 1024}
    weights = [None] * len(names)
    if draw(st.booleans()):
        weights = draw(st.lists(st.integers(0, 5), min_size=len(names), max_size=len(names)).filter(any))
        fields["stopping"] = draw(st.sampled_from(Stopping))
        fields["weight_unit"] = draw(st.sampled_from(["samples", "tokens"]))
        if fields["stopping"] is Stopping.WITH_REPLACEMENT:
            fields["shuffle"] = "full"
    sources = tuple(Source(store=name, weight=weight) for name, weight in zip(names, weights, strict=True))
    return OrderSpec(sources=sources, **fields)


@st.composite
def chains(draw):
    first_steps = sorted(draw(st.sets(st.integers(2, STEPS), max_size=3)))
    return [(first, draw(order_specs())) for first in [1, *first_steps]]


batches = st.builds(
    BatchSpec, step_samples=st.integers(1, 20), micro_batch_tokens=st.just(4096), lookahead_steps=st.integers(1, 4)
)


def planner_of(hashed_table, chain):
    stages = []
    for number, (first_step, spec) in enumerate(chain):
        sizes = [SIZES[source.store] for source in spec.sources]
        order = sample_order(spec, [Rows(size) for size in sizes], stage=number)
        table, name = hashed_table(*sizes), f"order {number}"
        stages.append(PlannedStage(first_step=first_step, order=order, table=table, fingerprint=name))
    return Planner(stages), stages


def follow(planner, batch, ranks, cursor, steps):
    plans = []
    for _ in range(steps):
        plans.append(planner.plan(cursor, batch, ranks))
        cursor = Cursor.from_json(plans[-1].end.to_json())
    return plans


def rows_of(plans):
    return [sorted(zip(plan.samples.source.tolist(), plan.samples.row.tolist(), strict=True)) for plan in plans]


@settings(deadline=None, max_examples=20)
@given(
    chain=chains(), batch=batches, crash=st.integers(0, STEPS), ranks=st.tuples(st.integers(1, 4), st.integers(1, 4))
)
def test_a_crash_and_other_ranks_change_no_step(hashed_table, chain, batch, crash, ranks):
    planner, _ = planner_of(hashed_table, chain)
    whole = follow(planner, batch, ranks[0], planner.initial_cursor(), STEPS)
    begin = whole[crash - 1].end if crash else planner.initial_cursor()
    again = follow(planner_of(hashed_table, chain)[0], batch, ranks[0], begin, STEPS - crash)
    assert [plan.digest for plan in again] == [plan.digest for plan in whole[crash:]]
    if batch.lookahead_steps == 1:
        others = follow(planner_of(hashed_table, chain)[0], batch, ranks[1], begin, STEPS - crash)
        assert rows_of(others) == rows_of(whole[crash:])


@settings(deadline=None, max_examples=20)
@given(chain=chains(), batch=batches)
def test_stages_that_are_appended_while_the_run_goes_on_change_nothing_before_them(hashed_table, chain, batch):
    """Each stage becomes known only when the first step that it may begin at is reached."""
    cursor, known, plans = Cursor(order_fingerprint="order 0"), 1, []
    while len(plans) < STEPS:
        while known < len(chain) and earliest_first_step(cursor) >= chain[known][0]:
            chain[known] = (earliest_first_step(cursor), chain[known][1])
            chain[known + 1 :] = [(max(at, chain[known][0] + 1), spec) for at, spec in chain[known + 1 :]]
            known += 1
        plans += follow(planner_of(hashed_table, chain[:known])[0], batch, 2, cursor, 1)
        cursor = plans[-1].end
    ends = [plan.end.stage for plan in plans]
    assert ends == sorted(ends)
    for plan in plans:
        planner_of(hashed_table, chain[: plan.end.stage + 1])[0].check(plan.end)
        firsts = [first for first, _ in chain]
        assert firsts[plan.end.stage] <= plan.step
        assert plan.end.stage + 1 == known or plan.step < firsts[plan.end.stage + 1]


@settings(deadline=None, max_examples=20)
@given(chain=chains(), samples=st.integers(1, 20))
def test_what_the_cursor_counts_is_what_the_ranks_were_given(hashed_table, chain, samples):
    batch = BatchSpec(step_samples=samples, micro_batch_tokens=4096)
    planner, stages = planner_of(hashed_table, chain)
    for plan in follow(planner, batch, 2, planner.initial_cursor(), STEPS):
        order = stages[plan.end.stage].order
        if not order.by_weight or plan.begin.stage != plan.end.stage:
            continue
        before, after = order.drawn(place_of(plan.begin)), order.drawn(place_of(plan.end))
        names = list(before)
        given_out = Counter(names[source] for source in plan.samples.source.tolist())
        assert {name: after[name] - before[name] for name in names if after[name] != before[name]} == given_out
