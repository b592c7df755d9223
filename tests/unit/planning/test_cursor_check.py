"""Cursors come from checkpoints: a foreign or impossible one is refused, with what is wrong and with which value."""

from dataclasses import replace

import pytest

from dataserver.cursor import Cursor, Deal, Window
from dataserver.errors import ForeignCursorError, InvalidRequestError, PlanMismatchError
from dataserver.planning.fingerprint import PLANNER_VERSION, order_fingerprint
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, OrderSpec, Shuffle, Source
from dataserver.sampling.union import plain_union

ORDER = OrderSpec(sources=(Source(store="chat"),), seed=7, max_length=512)
FINGERPRINT = order_fingerprint(ORDER, ["a" * 32])
DEAL = Deal(
    dp_world_size=2,
    micro_batch_tokens=1024,
    alignment=1,
    cost_linear=1,
    cost_quadratic=0,
    policy="balanced",
    planner_version=PLANNER_VERSION,
)
CURSOR = Cursor(order_fingerprint=FINGERPRINT, step=9, epoch=2, position=99)
INSIDE = replace(CURSOR, window=Window(steps=4, steps_done=2, samples=40, deal=DEAL))


@pytest.fixture
def planner(hashed_table):
    return Planner.of_order(plain_union((100,), 7, Shuffle.FULL), hashed_table(100), FINGERPRINT)


@pytest.mark.parametrize("cursor", [CURSOR, INSIDE, replace(CURSOR, position=0), replace(CURSOR, step=2**62)])
def test_a_cursor_that_a_step_can_begin_at_passes(planner, cursor):
    planner.check(cursor)


def test_the_initial_cursor_passes_and_is_the_beginning(planner):
    planner.check(planner.initial_cursor())
    assert planner.initial_cursor() == Cursor(order_fingerprint=FINGERPRINT)


def test_a_cursor_of_another_order_is_refused_with_the_fields_that_differ(planner):
    other = order_fingerprint(ORDER.model_copy(update={"seed": 8, "max_length": 64}), ["a" * 32])
    with pytest.raises(ForeignCursorError, match="step 9 belongs to another order: seed, max_length differ") as caught:
        planner.check(replace(CURSOR, order_fingerprint=other))
    assert caught.value.details["fields"] == "seed, max_length"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stage", 1), ("step", -1), ("step", 2**63), ("epoch", -1), ("epoch", 2**63), ("position", -1),
        ("position", 100), ("position", "7"), ("epoch", 1.0), ("step", True), ("position", None),
    ],
)  # fmt: skip
def test_an_impossible_position_is_refused_by_name_and_value(planner, field, value):
    with pytest.raises(InvalidRequestError, match=f"cursor: {field} = {value!r} is not a whole number in"):
        planner.check(replace(CURSOR, **{field: value}))


def test_source_positions_belong_to_other_orders(planner):
    with pytest.raises(InvalidRequestError, match=r"source_positions = \(3,\)"):
        planner.check(replace(CURSOR, source_positions=(3,)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 1), ("steps", 41), ("steps_done", 0), ("steps_done", 4),
        ("samples", 1), ("samples", 2**40), ("samples", "x"),
    ],
)  # fmt: skip
def test_an_impossible_window_is_refused_by_name_and_value(planner, field, value):
    with pytest.raises(InvalidRequestError, match=f"cursor: window.{field} = {value!r} "):
        planner.check(replace(INSIDE, window=replace(INSIDE.window, **{field: value})))


def test_more_steps_of_a_window_than_steps_at_all_are_refused(planner):
    with pytest.raises(InvalidRequestError, match=r"window.steps_done = 2 is not a whole number in 1..1"):
        planner.check(replace(INSIDE, step=1))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dp_world_size", 0), ("dp_world_size", 2**31), ("micro_batch_tokens", 0), ("micro_batch_tokens", 2**40),
        ("alignment", 0), ("cost_linear", -1), ("cost_linear", 0), ("cost_quadratic", -1),
        ("policy", "best"), ("policy", 3),
    ],
)  # fmt: skip
def test_an_impossible_deal_is_refused_by_name(planner, field, value):
    name = "cost_quadratic" if (field, value) == ("cost_linear", 0) else field
    with pytest.raises(InvalidRequestError, match=f"cursor: window.deal.{name} = "):
        planner.check(replace(INSIDE, window=replace(INSIDE.window, deal=replace(DEAL, **{field: value}))))


@pytest.mark.parametrize("version", [PLANNER_VERSION + 1, PLANNER_VERSION - 1])
def test_a_window_of_another_planner_version_is_refused_with_both_versions(planner, version):
    foreign = replace(INSIDE, window=replace(INSIDE.window, deal=replace(DEAL, planner_version=version)))
    with pytest.raises(PlanMismatchError, match=f"planner version {version} dealt.* has version {PLANNER_VERSION}"):
        planner.check(foreign)
    with pytest.raises(PlanMismatchError):
        planner.plan(foreign, BatchSpec(step_samples=1, micro_batch_tokens=1024), 1)


def test_planning_checks_its_cursor(planner):
    with pytest.raises(ForeignCursorError):
        planner.plan(replace(CURSOR, order_fingerprint="x"), BatchSpec(step_samples=1, micro_batch_tokens=1024), 1)
