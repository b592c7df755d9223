"""Rows of which nothing is served: each holds its position and is no sample, at any world size and from any cursor."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.cursor import Cursor
from dataserver.errors import InvalidSpecError
from dataserver.planning.plan import EndOfRun
from dataserver.planning.planner import Planner
from dataserver.planning.stages import PlannedStage, entered, place_of
from dataserver.run_spec import BatchSpec, OrderSpec, Shuffle, Source
from dataserver.sampling.build import sample_order
from dataserver.sampling.union import plain_union

CUTS = (
    {"step_samples": 5},
    {"step_tokens": 60},
    {"step_rounds": 2},
    {"step_tokens": 60, "lookahead_steps": 4},
    {"step_samples": 3, "lookahead_steps": 3},
)
# Served rows of 2 to 20 tokens, and rows of which nothing is served, also many of them in a row.
ROWS = st.lists(
    st.one_of(st.integers(2, 20).map(lambda length: [length]), st.integers(1, 12).map(lambda count: [0] * count)),
    min_size=1,
    max_size=80,
).map(lambda runs: [length for run in runs for length in run])


def served(lengths):
    return Counter((0, row) for row, length in enumerate(lengths) if length)


@pytest.mark.parametrize("cut", CUTS, ids=str)
@given(lengths=ROWS, shuffle=st.sampled_from((Shuffle.FULL, Shuffle.SEQUENTIAL)), ranks=st.lists(st.integers(1, 5)))
def test_every_row_that_is_served_comes_once_an_epoch_whatever_the_world_sizes(
    listed_table, drive, cut, lengths, shuffle, ranks
):
    if not any(lengths):
        return
    run = drive(listed_table([lengths]), shuffle=shuffle)
    batch = BatchSpec(micro_batch_tokens=32, max_epochs=2, **cut)
    for count in ranks:
        run.step(batch, count)
    run.to_the_end(batch, 3)
    assert run.consumed == Counter(dict.fromkeys(served(lengths), 2))
    assert run.cursor.epoch == 2
    assert run.cursor.position == 0
    # The last step says so itself: nothing that follows it had to be looked at.
    assert [plan.last for plan in run.plans] == [False] * (len(run.plans) - 1) + [True]
    assert all((plan.lengths > 0).all() for plan in run.plans)


@given(lengths=ROWS)
def test_a_cursor_stands_where_a_sample_is(listed_table, drive, lengths):
    if not any(lengths):
        return
    run = drive(listed_table([lengths]), shuffle=Shuffle.SEQUENTIAL)
    run.to_the_end(BatchSpec(micro_batch_tokens=32, max_epochs=2, step_samples=2), 2)
    for plan in run.plans[:-1]:
        assert lengths[plan.end.position]


@given(lengths=ROWS)
def test_in_stored_order_the_samples_are_those_of_a_table_without_such_rows(listed_table, drive, lengths):
    if not any(lengths):
        return
    batch = BatchSpec(micro_batch_tokens=32, max_epochs=3, step_tokens=60)
    gaps = drive(listed_table([lengths]), shuffle=Shuffle.SEQUENTIAL).to_the_end(batch, 2)
    kept = np.flatnonzero(lengths)
    plain = drive(listed_table([[lengths[row] for row in kept]]), shuffle=Shuffle.SEQUENTIAL).to_the_end(batch, 2)
    assert [plan.samples.row.tolist() for plan in gaps] == [kept[plan.samples.row].tolist() for plan in plain]


@pytest.mark.parametrize("max_epochs", [None, 1, 3])
def test_a_run_over_no_row_that_is_served_is_refused_and_does_not_search_for_ever(listed_table, max_epochs):
    table = listed_table([[0] * 700])
    planner = Planner.of_order(plain_union(table.sizes, 0, Shuffle.FULL), table, "order")
    with pytest.raises(InvalidSpecError, match="served"):
        planner.plan(
            planner.initial_cursor(), BatchSpec(step_samples=4, micro_batch_tokens=32, max_epochs=max_epochs), 1
        )


def test_a_run_whose_last_rows_are_not_served_ends_and_does_not_fail(listed_table):
    table = listed_table([[4, 4, 0, 0, 0]])
    planner = Planner.of_order(plain_union(table.sizes, 0, Shuffle.SEQUENTIAL), table, "order")
    # Such a cursor is that of an endless run, whose batch spec was given an end later.
    cursor = Cursor(order_fingerprint="order", step=1, position=2)
    ended = planner.plan(cursor, BatchSpec(step_samples=1, micro_batch_tokens=32, max_epochs=1), 1)
    assert ended == EndOfRun(end=cursor, reason="max_epochs")


@dataclass(frozen=True)
class Rows:
    rows: int
    kept_tokens: int = 0

    def block_rows(self):
        return np.full(self.rows // 7, 7)


@pytest.mark.parametrize(
    "fields", [{}, {"stopping": "first_exhausted"}, {"stopping": "all_exhausted_without_replacement"}]
)
def test_weighted_sources_go_on_over_stages_as_their_orders_say_without_what_is_not_served(listed_table, fields):
    lengths = [[2 + row % 9 if row % 3 else 0 for row in range(70)], [0 if row % 4 else 5 for row in range(140)]]
    table = listed_table(lengths)
    stages = []
    for number, (first_step, weights) in enumerate([(1, (1, 1)), (8, (3, 1))]):
        sources = tuple(Source(store=name, weight=weight) for name, weight in zip("ab", weights, strict=True))
        spec = OrderSpec(sources=sources, seed=7, max_length=64, **fields)
        order = sample_order(spec, [Rows(70), Rows(140)], stage=number)
        stages.append(PlannedStage(first_step=first_step, order=order, table=table, fingerprint=f"order {number}"))
    planner, batch = Planner(stages), BatchSpec(step_samples=11, micro_batch_tokens=64)
    cursor, plans = planner.initial_cursor(), []
    for ranks in (1, 3, 2) * 8:
        plans.append(planner.plan(Cursor.from_json(cursor.to_json()), batch, ranks))
        cursor = plans[-1].end
    for number, stage in enumerate(stages):
        mine = [plan for plan in plans if plan.end.stage == number]
        first = entered(mine[0].begin, stages)
        found = stage.order.samples(place_of(first), 2000)
        served = [
            (source, row)
            for source, row in zip(found.source.tolist(), found.row.tolist(), strict=True)
            if lengths[source][row]
        ]
        got = [
            sample
            for plan in mine
            for sample in zip(plan.samples.source.tolist(), plan.samples.row.tolist(), strict=True)
        ]
        assert got == served[: len(got)]
        assert len(got) == 11 * len(mine)
