"""Where a run ends, and that its last step is known as such with its plan."""

import pytest

from dataserver.errors import InvalidRequestError, InvalidSpecError
from dataserver.planning.check import MAX_DP_WORLD_SIZE
from dataserver.planning.plan import EndOfRun
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, Shuffle
from dataserver.sampling.union import plain_union


def spec(**more):
    return BatchSpec(**{"step_samples": 4, "micro_batch_tokens": 1024} | more)


@pytest.mark.parametrize("lookahead", [1, 2, 3, 4, 50])
def test_max_steps_ends_the_run_also_inside_a_window(drive, hashed_table, lookahead):
    run = drive(hashed_table(1000))
    plans = run.to_the_end(spec(max_steps=7, lookahead_steps=lookahead), 2)
    assert [plan.last for plan in plans] == [False] * 6 + [True]
    assert run.ended.reason == "max_steps"
    assert run.ended.end == plans[-1].end
    assert (run.cursor.step, run.cursor.position, run.cursor.window) == (7, 28, None)


@pytest.mark.parametrize("lookahead", [1, 2, 3, 4, 50])
def test_the_last_epoch_ends_the_run_with_a_short_step(drive, listed_table, lookahead):
    run = drive(listed_table([[10] * 9, [10] * 5]))
    plans = run.to_the_end(spec(max_epochs=2, lookahead_steps=lookahead), 2)
    assert [plan.last for plan in plans] == [False] * 6 + [True]
    assert run.ended.reason == "max_epochs"
    assert (run.cursor.epoch, run.cursor.position) == (2, 0)
    assert sorted(len(plan.samples) for plan in plans) == [4] * 7
    assert set(run.consumed.values()) == {2}


def test_the_short_step_counts_its_own_targets(drive, listed_table):
    plans = drive(listed_table([[10] * 6])).to_the_end(spec(max_epochs=1))
    assert [(len(plan.samples), plan.token_count, plan.target_count) for plan in plans] == [(4, 40, 20), (2, 20, 10)]


def test_the_bound_that_comes_first_ends_the_run(drive, listed_table):
    table = listed_table([[10] * 8])
    assert drive(table).to_the_end(spec(max_epochs=1, max_steps=2))[-1].last
    assert len(drive(table).to_the_end(spec(max_epochs=1, max_steps=1))) == 1
    assert len(drive(table).to_the_end(spec(max_epochs=1, max_steps=9))) == 2


def test_max_steps_lowered_inside_a_window_ends_the_run_there(drive, hashed_table):
    run = drive(hashed_table(1000))
    for _ in range(2):
        run.step(spec(lookahead_steps=4), 2)
    third = run.step(spec(lookahead_steps=4, max_steps=3), 2)
    assert third.last
    assert third.end.window is not None
    assert run.step(spec(max_steps=3), 2).reason == "max_steps"


def test_max_steps_raised_after_a_shortened_window_goes_on_exactly(drive, listed_table):
    run = drive(listed_table([[10, 20, 30, 40] * 10]))
    run.to_the_end(spec(lookahead_steps=4, max_steps=6), 2)
    run.to_the_end(spec(lookahead_steps=4, max_epochs=1), 3)
    assert set(run.consumed.values()) == {1}


def test_max_epochs_lowered_inside_a_window_ends_the_run_at_its_end(drive, listed_table):
    run = drive(listed_table([[10] * 10]))
    for _ in range(4):
        run.step(spec(lookahead_steps=4), 2)
    assert (run.cursor.epoch, run.cursor.position) == (1, 6)
    run.step(spec(lookahead_steps=3), 2)
    assert [run.step(spec(max_epochs=1), 2).last for _ in range(2)] == [False, True]
    assert isinstance(run.step(spec(max_epochs=1), 2), EndOfRun)


def test_planning_behind_the_end_says_so_again(drive, hashed_table):
    run = drive(hashed_table(1000))
    run.to_the_end(spec(max_steps=2))
    assert run.step(spec(max_steps=1), 1).reason == "max_steps"


def test_a_run_without_bounds_goes_on(drive, listed_table):
    run = drive(listed_table([[5, 6]]))
    for _ in range(50):
        assert not run.step(spec(), 1).last
    assert set(run.consumed.values()) == {100}


@pytest.mark.parametrize("sizes", [(), (0,), (0, 0, 0)])
def test_an_order_without_rows_is_refused_and_not_searched(hashed_table, sizes):
    with pytest.raises(InvalidSpecError, match=f"none of the {len(sizes)} sources keeps a row"):
        Planner.of_order(plain_union(sizes, 0, Shuffle.FULL), hashed_table(*sizes), "order")


@pytest.mark.parametrize("ranks", [0, -1, MAX_DP_WORLD_SIZE + 1, 2**31 - 1])
def test_impossible_numbers_of_ranks_are_refused(drive, hashed_table, ranks):
    with pytest.raises(InvalidRequestError, match=f"dp_world_size = {ranks} "):
        drive(hashed_table(10)).step(spec(), ranks)


def test_fewer_samples_than_ranks_give_every_rank_the_same_number_of_micro_batches(drive, listed_table):
    plans = drive(listed_table([[10] * 6])).to_the_end(spec(max_epochs=1), 16)
    for plan in plans:
        assert [len(group) for group in plan.rounds] == [16]
        assert sorted(len(members) for members in plan.rounds[0])[-len(plan.samples) :] == [1] * len(plan.samples)
