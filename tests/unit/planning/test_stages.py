"""Stages follow each other: what is planned of one depends on none after it, and cursors stay valid."""

from dataclasses import replace

import numpy as np
import pytest

from dataserver.cursor import Cursor
from dataserver.errors import ForeignCursorError, InvalidRequestError, InvalidSpecError
from dataserver.planning.fingerprint import differing_fields, order_fingerprint
from dataserver.planning.planner import Planner
from dataserver.planning.stages import PlannedStage, earliest_first_step
from dataserver.run_spec import BatchSpec, OrderSpec, Shuffle, Source
from dataserver.sampling.build import sample_order
from dataserver.sampling.union import plain_union

BATCH = BatchSpec(step_samples=10, micro_batch_tokens=4096)
WINDOWS = BATCH.model_copy(update={"lookahead_steps": 4})
ORDER = OrderSpec(sources=(Source(store="chat"),), seed=7, max_length=512)


class Rows:
    def __init__(self, rows):
        self.rows = rows


@pytest.fixture
def stages(hashed_table):
    """Three stages of unions: over 100, 40 and 60 rows, from steps 1, 8 and 13 on."""

    def stage(number, first_step, rows):
        order = sample_order(ORDER, [Rows(rows)], stage=number)
        return PlannedStage(first_step=first_step, order=order, table=hashed_table(rows), fingerprint=f"order {number}")

    return [stage(0, 1, 100), stage(1, 8, 40), stage(2, 13, 60)]


def follow(planner, batch, steps, cursor=None):
    plans, cursor = [], cursor or planner.initial_cursor()
    for _ in range(steps):
        plans.append(planner.plan(Cursor.from_json(cursor.to_json()), batch, 2))
        cursor = plans[-1].end
    return plans


def test_each_step_belongs_to_the_stage_that_its_number_says(stages):
    plans = follow(Planner(stages), BATCH, 20)
    assert [plan.end.stage for plan in plans] == [0] * 7 + [1] * 5 + [2] * 8
    assert [plan.end.order_fingerprint for plan in plans] == [f"order {plan.end.stage}" for plan in plans]


@pytest.mark.parametrize("batch", [BATCH, WINDOWS])
def test_steps_before_a_stage_are_planned_alike_whether_it_is_there_or_not(stages, batch):
    plans = follow(Planner(stages), batch, 12)
    short = follow(Planner(stages[:2]), batch, 12)
    assert [plan.digest for plan in plans[:8]] == [plan.digest for plan in short[:8]]
    assert plans[6].end == follow(Planner(stages[:1]), BATCH, 7)[6].end


def test_a_cursor_of_a_stage_stays_valid_when_another_is_appended(stages):
    cursor = follow(Planner(stages[:1]), BATCH, 7)[-1].end
    assert cursor.stage == 0
    plan = Planner(stages).plan(cursor, BATCH, 2)
    assert (plan.begin, plan.end.stage, plan.step) == (cursor, 1, 8)


def test_a_union_begins_with_all_of_its_rows_and_the_epoch_under_way_begins_anew(stages):
    plans = follow(Planner(stages), BATCH, 12)
    assert (plans[6].end.epoch, plans[6].end.position) == (0, 70)
    rows = np.concatenate([plan.samples.row for plan in plans[7:11]])
    assert sorted(rows.tolist()) == list(range(40))
    assert [(plan.end.epoch, plan.end.position) for plan in plans[7:12]] == [(0, 10), (0, 20), (0, 30), (1, 0), (1, 10)]


def test_a_stage_over_the_same_rows_begins_with_others():
    first, later = (sample_order(ORDER, [Rows(1000)], stage=stage) for stage in (0, 1))
    begin = first.begin(0, {})
    assert len(set(first.samples(begin, 50).row.tolist()) & set(later.samples(begin, 50).row.tolist())) < 15


def test_no_window_spans_stages(stages):
    plans = follow(Planner(stages), WINDOWS, 20)
    windows = [plan.end.window.steps if plan.end.window else 0 for plan in plans]
    assert windows[:12] == [4, 4, 4, 0, 3, 3, 0, 4, 4, 4, 0, 0]
    assert [earliest_first_step(plan.end) for plan in plans[:7]] == [5, 5, 5, 5, 8, 8, 8]


@pytest.mark.parametrize("steps", range(1, 20))
def test_a_run_resumed_at_any_step_goes_on_as_if_nothing_had_happened(stages, steps):
    whole = [plan.digest for plan in follow(Planner(stages), WINDOWS, 20)]
    before = follow(Planner(stages), WINDOWS, steps)
    after = follow(Planner(stages), WINDOWS, 20 - steps, before[-1].end)
    assert [plan.digest for plan in before + after] == whole


def test_a_checkpoint_from_beyond_the_end_of_its_stage_is_refused(stages):
    cursor = follow(Planner(stages[:1]), BATCH, 8)[-1].end
    with pytest.raises(ForeignCursorError, match="step 8 stands in stage 0, but stage 1 of the run begins with step 8"):
        Planner(stages).check(cursor)


def test_a_checkpoint_inside_a_window_that_a_stage_would_cut_is_refused(stages):
    cursor = follow(Planner(stages[:1]), WINDOWS, 5)[-1].end
    assert earliest_first_step(cursor) == 9
    with pytest.raises(ForeignCursorError, match="stage 0 inside a window, but stage 1 of the run begins with step 8"):
        Planner(stages).check(cursor)


def test_a_cursor_of_a_later_stage_is_none_of_a_step_before_it(stages):
    cursor = follow(Planner(stages), BATCH, 9)[-1].end
    with pytest.raises(InvalidRequestError, match=r"step = 7 is not a whole number in 8\.\."):
        Planner(stages).check(replace(cursor, step=7))


def test_a_cursor_of_another_stage_is_foreign(stages):
    cursor = follow(Planner(stages), BATCH, 9)[-1].end
    with pytest.raises(ForeignCursorError):
        Planner(stages).check(replace(cursor, order_fingerprint="order 0"))
    with pytest.raises(InvalidRequestError, match=r"stage = 1 is not a whole number in 0\.\.0"):
        Planner(stages[:1]).check(cursor)


@pytest.mark.parametrize(
    ("first_steps", "fault"),
    [((2,), "first stage begins at step 1"), ((1, 1), "stage 1 would begin at step 1"), ((1, 5, 4), "stage 2 would"),
     ((1, 2**62 + 1), "at most")],
)  # fmt: skip
def test_stages_that_do_not_follow_each_other_are_refused(hashed_table, first_steps, fault):
    table = hashed_table(10)
    order = plain_union((10,), 0, Shuffle.FULL)
    with pytest.raises(InvalidSpecError, match=fault):
        Planner([PlannedStage(first_step=step, order=order, table=table, fingerprint="x") for step in first_steps])


def test_a_run_without_a_stage_is_refused():
    with pytest.raises(InvalidSpecError, match="first stage"):
        Planner([])


def test_the_fingerprint_of_a_stage_covers_those_before_it_and_where_it_begins():
    first = order_fingerprint(ORDER, ["a"])
    later = order_fingerprint(ORDER, ["a"], before=first, first_step=8)
    assert differing_fields(first, later) == ("stages",)
    assert differing_fields(later, order_fingerprint(ORDER, ["a"], before=first, first_step=9)) == ("stages",)
    assert differing_fields(later, order_fingerprint(ORDER, ["a"], before=later, first_step=8)) == ("stages",)
