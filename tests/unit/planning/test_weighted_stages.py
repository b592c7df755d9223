"""Stages of weighted sources: each source goes on where it stood, and the cursor says where that is."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from dataserver.cursor import Cursor
from dataserver.errors import InvalidRequestError
from dataserver.planning.planner import Planner
from dataserver.planning.stages import PlannedStage
from dataserver.run_spec import BatchSpec, OrderSpec, Source
from dataserver.sampling.build import sample_order

BATCH = BatchSpec(step_samples=30, micro_batch_tokens=4096, lookahead_steps=2)
SIZES = {"chat": 100, "code": 400, "math": 50}


@dataclass(frozen=True)
class Rows:
    rows: int
    kept_tokens: int = 1

    def block_rows(self):
        raise NotImplementedError


@pytest.fixture
def stages(hashed_table):
    """Chat and code, half and half; from step 6 on code, chat and math, 3 : 1 : 1; from step 11 on a union."""

    def stage(number, first_step, weights):
        sources = tuple(Source(store=store, weight=weight) for store, weight in weights.items())
        spec = OrderSpec(sources=sources, seed=7, max_length=512)
        sizes = [SIZES[store] for store in weights]
        order = sample_order(spec, [Rows(size) for size in sizes], stage=number)
        table = hashed_table(*sizes)
        return PlannedStage(first_step=first_step, order=order, table=table, fingerprint=f"order {number}")

    return [
        stage(0, 1, {"chat": 1, "code": 1}),
        stage(1, 6, {"code": 3, "chat": 1, "math": 1}),
        stage(2, 11, {"chat": None, "math": None}),
        stage(3, 14, {"code": 1, "chat": 1}),
    ]


def follow(planner, steps, cursor=None):
    plans, cursor = [], cursor or planner.initial_cursor()
    for _ in range(steps):
        plans.append(planner.plan(Cursor.from_json(cursor.to_json()), BATCH, 2))
        cursor = plans[-1].end
    return plans


def rows_of(plans, source):
    return np.concatenate([np.sort(plan.samples.row[plan.samples.source == source]) for plan in plans]).tolist()


def test_a_source_goes_on_with_the_rows_that_it_has_not_given(stages):
    plans = follow(Planner(stages), 10)
    first, later = rows_of(plans[:5], 1), rows_of(plans[5:10], 0)
    assert len(first) + len(later) == 75 + 90
    assert not set(first) & set(later)


def test_the_cursor_counts_what_every_source_gave_from_the_second_stage_on(stages):
    plans = follow(Planner(stages), 13)
    assert all(plan.end.source_positions == () for plan in plans[:5])
    assert plans[9].end.source_positions == (75 + 90, 75 + 30, 30)
    assert (plans[9].end.epoch, plans[9].end.position) == (0, 150)
    assert all(plan.end.source_positions == () for plan in plans[10:])


def test_what_a_union_gave_is_not_counted(stages):
    cursor = follow(Planner(stages), 14)[-1].end
    assert cursor.window is not None
    assert cursor.source_positions == (0, 0)


@pytest.mark.parametrize("steps", range(1, 18))
def test_a_run_resumed_at_any_step_goes_on_as_if_nothing_had_happened(stages, steps):
    whole = [plan.digest for plan in follow(Planner(stages), 18)]
    before = follow(Planner(stages), steps)
    after = follow(Planner(stages), 18 - steps, before[-1].end)
    assert [plan.digest for plan in before + after] == whole


def test_an_epoch_beyond_all_counts_is_refused(stages):
    cursor = Planner(stages).initial_cursor()
    last = 2**62 // stages[0].order.epoch_size
    Planner(stages).plan(replace(cursor, epoch=last), BATCH, 2)
    with pytest.raises(InvalidRequestError, match=f"epoch = {last + 1} is not a whole number in 0..{last}"):
        Planner(stages).check(replace(cursor, epoch=last + 1))


@pytest.mark.parametrize(
    ("step", "positions", "fault"),
    [
        (3, (45, 45), r"source_positions = \(45, 45\), but here `epoch` and `position` say it all"),
        (9, (), "source_positions = .* are 0, and the order has 3 sources"),
        (9, (165, 105), "are 2, and the order has 3 sources"),
        (9, (71, 105, 30), r"source_positions\[0\] = 71 is not a whole number in 72\.\."),
        (9, (165, 105, 2**62 + 1), r"source_positions\[2\] = "),
        (9, (165, 105, "30"), r"source_positions\[2\] = '30'"),
        (12, (1, 1), "say it all"),
    ],
)
def test_impossible_source_positions_are_refused_by_name_and_value(stages, step, positions, fault):
    cursor = follow(Planner(stages), step)[-1].end
    with pytest.raises(InvalidRequestError, match=fault):
        Planner(stages).check(replace(cursor, source_positions=positions))
