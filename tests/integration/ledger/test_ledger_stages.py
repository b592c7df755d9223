"""Stages in the ledger, on SQLite and PostgreSQL: appended, never changed, and part of every seal's condition."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from dataserver.cursor import Cursor, Deal, Window
from dataserver.errors import (
    ForeignCursorError,
    InvalidRequestError,
    InvalidSpecError,
    OutdatedPlanError,
    PreconditionError,
    RunConflictError,
    RunNotFoundError,
    UnavailableError,
)
from dataserver.ledger import Run, RunStage
from dataserver.ledger.rules import stages as stage_rules
from dataserver.planning.fingerprint import order_fingerprint
from dataserver.planning.stages import Stage
from dataserver.run_spec import OrderSpec

DEAL = Deal(
    dp_world_size=2, micro_batch_tokens=16, alignment=1, cost_linear=1, cost_quadratic=0, policy="balanced",
    planner_version=1,
)  # fmt: skip


def fingerprint_of(story, stage: Stage, before: str) -> str:
    return order_fingerprint(stage.order, ["store fingerprint"], before=before, first_step=stage.first_step)


def amend(story, first_step: int, *, before: str = "", **order: object) -> tuple[Run, bool]:
    fields = story.spec.order.model_dump() | (order or {"seed": 5})
    stage = Stage(first_step=first_step, order=OrderSpec.model_validate(fields))
    before = before or story.run.stages[-1].order_fingerprint
    added = RunStage(stage=stage, order_fingerprint=fingerprint_of(story, stage, before), epoch_samples=20)
    return story.ledger.amend_run("run", added, before)


def later(story, step: int, **fields: object) -> dict[str, object]:
    """What a server that knows the last stage proposes for a step in it."""
    newest = story.run.stages[-1].order_fingerprint
    number = len(story.run.stages) - 1
    return {"end": story.cursor(step, order_fingerprint=newest, stage=number), "stages": newest} | fields


def test_a_run_begins_with_one_stage_and_gets_others(story) -> None:
    assert [(stage.stage.first_step, stage.order_fingerprint) for stage in story.run.stages] == [(1, story.fingerprint)]
    run, amended = amend(story, 5)
    assert amended
    assert [stage.stage.first_step for stage in run.stages] == [1, 5]
    assert run.stages[0].stage.order == story.spec.order
    assert run.stages[1].stage.order.seed == 5
    assert (run.spec, run.order_fingerprint) == (story.spec, story.fingerprint)
    assert amend(story, 9, seed=6)[0].stages[:2] == run.stages
    events = [event for event in story.ledger.list_events("run", 100) if event.kind == "amended"]
    assert [event.step for event in events] == [5, 9]


def test_the_same_stage_again_is_found_even_when_its_steps_are_sealed(story) -> None:
    first = story.run.stages[0].order_fingerprint
    amended, _ = amend(story, 2)
    story.begin()
    story.seal(1, 1, stages=amended.stages[-1].order_fingerprint)
    story.seal(1, 2, **later(story, 2))
    assert amend(story, 2, before=first) == (story.run, False)
    assert story.kinds.count("amended") == 1


def test_another_order_under_the_same_first_step_is_refused_with_the_difference(story) -> None:
    first = story.run.stages[0].order_fingerprint
    run, _ = amend(story, 5)
    with pytest.raises(RunConflictError, match=r"seed \(there: 5, asked: 8\), max_length \(there: 8, asked: 6\)"):
        amend(story, 5, before=first, seed=8, max_length=6)
    assert story.run.stages == run.stages


def test_a_stage_begins_after_all_that_is_sealed(story) -> None:
    story.begin()
    story.seal_up_to(1, 3)
    for first_step in (2, 3):
        with pytest.raises(PreconditionError, match="step 3 is sealed: give first step 4 or a later one"):
            amend(story, first_step)
    assert amend(story, 4)[1]


def test_a_stage_begins_after_the_stages_before_it(story) -> None:
    amend(story, 5)
    with pytest.raises(PreconditionError, match="stage 1 begins with step 5"):
        amend(story, 4, seed=6)


def test_a_stage_does_not_begin_inside_a_window_under_way(story) -> None:
    story.begin()
    window = Window(steps=4, steps_done=1, samples=8, deal=DEAL)
    story.seal(1, 1, end=story.cursor(1, position=0, window=window))
    for first_step in (2, 3, 4):
        with pytest.raises(PreconditionError, match=r"inside a window .* up to step 4: give first step 5"):
            amend(story, first_step)
    assert amend(story, 5)[1]


def test_a_stage_does_not_begin_inside_a_window_that_a_checkpoint_brought_along(story) -> None:
    window = Window(steps=4, steps_done=3, samples=8, deal=DEAL)
    story.begin(story.cursor(11, position=0, window=window))
    with pytest.raises(PreconditionError, match="give first step 13"):
        amend(story, 12)


def test_a_plan_that_was_made_without_the_stage_is_not_sealed(story) -> None:
    story.begin()
    story.seal(1, 1)
    amend(story, 3)
    with pytest.raises(OutdatedPlanError, match="stage 1, which begins with step 3"):
        story.seal(1, 2)
    assert story.run.sealed_step == 1
    story.seal(1, 2, stages=story.run.stages[-1].order_fingerprint)
    with pytest.raises(OutdatedPlanError):
        story.seal(1, 3)
    assert story.seal(1, 3, **later(story, 3)).end.stage == 1
    assert story.run.sealed_step == 3


def test_a_cursor_belongs_to_its_stage(story) -> None:
    story.begin()
    amend(story, 2)
    newest = story.run.stages[-1].order_fingerprint
    with pytest.raises(ForeignCursorError):
        story.seal(1, 1, end=story.cursor(1, order_fingerprint=newest), stages=newest)
    with pytest.raises(ForeignCursorError, match=r"the last stage of run 'run' is 1.* run amend run"):
        story.begin(story.cursor(7, order_fingerprint=newest, stage=2), take_over=True)


def test_a_checkpoint_from_before_the_stage_goes_on_into_it(story) -> None:
    story.begin()
    story.seal_up_to(1, 4)
    story.commit(1, 2)
    amend(story, 5)
    attempt = story.begin(story.cursor(2), take_over=True)
    assert (attempt.base, story.run.sealed_step) == (story.cursor(2), 2)
    newest = story.run.stages[-1].order_fingerprint
    for step in (3, 4):
        story.seal(2, step, stages=newest)
    assert story.seal(2, 5, **later(story, 5)).end.stage == 1


def test_stages_stay_when_the_run_is_rewound_behind_them(story) -> None:
    story.begin()
    story.seal(1, 1)
    amend(story, 2)
    story.seal(1, 2, **later(story, 2))
    stages = story.run.stages
    story.ledger.rewind_run("run", 0)
    assert story.run.stages == stages
    story.begin()
    with pytest.raises(OutdatedPlanError):
        story.seal(3, 1)
    story.seal(3, 1, stages=stages[-1].order_fingerprint)
    assert story.seal(3, 2, **later(story, 2)).end.stage == 1


def test_a_checkpoint_of_a_branch_that_passed_the_stage_by_is_refused(story) -> None:
    story.begin()
    story.seal_up_to(1, 6)
    story.ledger.rewind_run("run", 2)
    amend(story, 4)
    with pytest.raises(ForeignCursorError, match="stage 1 of the run begins with step 4"):
        story.begin(story.cursor(6))
    window = Window(steps=3, steps_done=1, samples=8, deal=DEAL)
    with pytest.raises(ForeignCursorError, match="inside a window"):
        story.begin(story.cursor(3, position=2, window=window))
    assert story.begin(story.cursor(3)).base.step == 3


def test_orders_and_batch_specs_fit_each_other_whichever_comes_first(story) -> None:
    story.begin(batch=replace_batch(story, micro_batch_tokens=10))
    with pytest.raises(InvalidSpecError, match="micro_batch_tokens = 10 is below the 12 tokens"):
        amend(story, 2, max_length=12)
    with pytest.raises(InvalidSpecError, match="micro_batch_tokens = 16 is below the 20 tokens"):
        amend(story, 2, max_length=20)
    story.ledger.rewind_run("run", 0)
    amend(story, 2, max_length=12)
    with pytest.raises(InvalidSpecError, match="micro_batch_tokens = 10 is below the 12 tokens"):
        story.begin(batch=replace_batch(story, micro_batch_tokens=10))
    other = story.spec.model_copy(update={"batch": replace_batch(story, micro_batch_tokens=10)})
    with pytest.raises(InvalidSpecError, match="micro_batch_tokens = 10 is below the 12 tokens"):
        story.ledger.create_run("run", other, story.fingerprint, epoch_samples=10)


def replace_batch(story, **fields: object):
    return story.spec.batch.model_copy(update=fields)


def test_a_stage_is_appended_to_those_that_it_was_made_for(story) -> None:
    first = story.run.stages[0].order_fingerprint
    amend(story, 5)
    with pytest.raises(UnavailableError, match="another stage meanwhile"):
        amend(story, 9, before=first)


@pytest.mark.parametrize("first_step", [-1, 0, 1, 2**62 + 1, 2**63])
def test_a_first_step_that_no_stage_can_have_is_refused(story, first_step: int) -> None:
    with pytest.raises(InvalidRequestError, match="first_step"):
        amend(story, first_step)


def test_stages_come_to_an_end(story, monkeypatch) -> None:
    monkeypatch.setattr(stage_rules, "MAX_STAGES", 3)
    amend(story, 5)
    amend(story, 6, seed=6)
    with pytest.raises(PreconditionError, match="has 3 stages, which is the most"):
        amend(story, 7, seed=7)


def test_a_run_that_is_not_there_has_no_stages(story) -> None:
    stage = Stage(first_step=2, order=story.spec.order)
    added = RunStage(stage=stage, order_fingerprint="f", epoch_samples=20)
    with pytest.raises(RunNotFoundError):
        story.ledger.amend_run("other", added, story.fingerprint)


def test_of_a_seal_and_an_amendment_at_one_time_one_sees_the_other(story) -> None:
    """Whatever comes first: no step of the new stage is sealed in the old order."""
    story.begin()
    for step in range(1, 9):
        newest = story.run.stages[-1].order_fingerprint
        number = len(story.run.stages) - 1
        end = Cursor(order_fingerprint=newest, stage=number, step=step, position=2 * step)
        proposed = replace(story.propose(step), end=end, stages=newest)
        with ThreadPoolExecutor(2) as threads:
            sealing = threads.submit(story.ledger.seal, story.uid, story.key(1), proposed)
            amending = threads.submit(amend, story, step, seed=step, before=newest) if step > 1 else None
            sealed = sealing.exception() is None
            amended = amending is not None and amending.exception() is None
        assert sealed != amended or amending is None
        if not sealed:
            story.seal(1, step, **later(story, step))
    assert story.run.sealed_step == 8
