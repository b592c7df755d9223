"""Stories of resumes and rivals, each told with real processes."""

import pytest
from crashlab.pool import Pool

# Of two epochs of seven steps.
LAST = 14


def test_the_second_resume_goes_on_where_the_second_save_was(laboratory: Pool):
    assert laboratory.run("resume_twice") == []


def test_a_save_exactly_at_the_end_of_an_epoch_leaves_the_next_epoch_whole(laboratory: Pool):
    assert laboratory.run("save_at_epoch_end") == []


def test_a_resume_changes_neither_its_own_epoch_nor_the_one_after(laboratory: Pool):
    assert laboratory.run("resumed_and_uninterrupted") == []


def test_a_run_resumes_by_name_and_version_without_a_cursor(laboratory: Pool):
    assert laboratory.run("resume_by_version") == []


def test_the_batch_size_may_change_at_a_resume(laboratory: Pool):
    assert laboratory.run("batch_size_changes") == []


@pytest.mark.parametrize(("before", "after"), [(2, 3), (4, 1), (1, 4)])
def test_a_crash_inside_a_window_loses_and_repeats_nothing_at_another_world_size(
    laboratory: Pool, before: int, after: int
):
    assert laboratory.run("window_crash", before=before, after=after) == []


@pytest.mark.parametrize("victim", ["server", "both"])
@pytest.mark.parametrize("point", ["commit_not_written", "commit_not_answered"])
def test_a_lost_commit_costs_nothing(laboratory: Pool, point: str, victim: str):
    assert laboratory.run("crash_around_the_ledger", point=point, step=6, victim=victim) == []


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["server", "both"])
@pytest.mark.parametrize(
    ("point", "step"),
    [
        ("begin_not_written", 0),
        ("begin_not_answered", 0),
        ("open_not_written", 1),
        ("open_not_answered", 1),
        ("acks_not_written", 4),
        ("acks_not_answered", 4),
        pytest.param("before_seal", LAST, id="before_seal of the last step"),
        pytest.param("after_seal", LAST, id="after_seal of the last step"),
        pytest.param("acks_not_written", LAST, id="acks_not_written of the last step"),
        pytest.param("commit_not_written", LAST, id="commit_not_written of the last step"),
        pytest.param("commit_not_answered", LAST, id="commit_not_answered of the last step"),
        pytest.param("before_seal", LAST + 1, id="before_seal of the end"),
        pytest.param("after_seal", LAST + 1, id="after_seal of the end"),
    ],
)
def test_a_crash_around_any_transaction_of_the_ledger_costs_nothing(
    laboratory: Pool, point: str, step: int, victim: str
):
    assert laboratory.run("crash_around_the_ledger", point=point, step=step, victim=victim) == []


@pytest.mark.parametrize("victim", ["server", "one_rank"])
@pytest.mark.parametrize("point", ["after_seal", "mid_stream"])
def test_ranks_that_share_a_data_parallel_rank_survive_a_crash_with_equal_bytes(
    laboratory: Pool, point: str, victim: str
):
    assert laboratory.run("siblings_crash", point=point, victim=victim) == []


def test_a_ledger_restored_from_an_older_copy_adopts_the_cursor_of_the_checkpoint(laboratory: Pool):
    assert laboratory.run("ledger_restored") == []


@pytest.mark.parametrize("point", ["before_seal", "after_seal", "mid_stream"])
def test_ranks_move_to_the_other_replica_when_theirs_is_killed(laboratory: Pool, point: str):
    assert laboratory.run("replica_killed", point=point) == []


def test_a_run_that_ended_may_be_prolonged(laboratory: Pool):
    assert laboratory.run("run_is_prolonged") == []


def test_a_run_that_is_rewound_under_its_trainer_ends_it_and_goes_on_from_there(laboratory: Pool):
    assert laboratory.run("run_is_rewound") == []


def test_a_second_trainer_is_refused_until_it_takes_over_and_the_first_stays_fenced(laboratory: Pool):
    assert laboratory.run("two_trainers") == []
