"""Every fault that weights on demand must survive: training goes on, no torn version is served, nothing is lost."""

import pytest
from crashlab.pool import Pool

VICTIMS = ("orchestrator", "server", "engine-0")
MOMENTS = (
    "before_prepare",
    "in_prepare",
    "prepared",
    "sending",
    "before_commit",
    "in_commit",
    "committed",
    "step_done",
)


@pytest.mark.timeout(300)
def test_syncs_and_evals_of_an_undisturbed_run_are_whole(sync_laboratory: Pool):
    assert sync_laboratory.run("undisturbed") == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", MOMENTS)
def test_orchestrator_server_and_engine_may_be_killed_in_every_phase_of_a_handover(sync_laboratory: Pool, moment: str):
    each = [{"victim": victim, "moment": moment} for victim in VICTIMS]
    results = zip(each, sync_laboratory.run_all("killed", each), strict=True)
    assert [f"{arguments}: {told}" for arguments, complaints in results for told in complaints] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", ["prepared", "sending", "before_commit", "in_commit"])
def test_a_trainers_rank_may_be_killed_in_the_middle_of_a_transfer(sync_laboratory: Pool, moment: str):
    each = [{"victim": victim, "moment": moment} for victim in ("rank-0", "rank-1")]
    results = zip(each, sync_laboratory.run_all("killed", each), strict=True)
    assert [f"{arguments}: {told}" for arguments, complaints in results for told in complaints] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("action", ["die", "http_500", "hang"])
def test_an_engine_may_fail_in_every_call_of_a_transfer(sync_laboratory: Pool, action: str):
    calls = ("pause", "announce", "start", "update", "finish", "reset", "resume", "generate")
    each = [{"call": call, "action": action, "after": after} for call in calls for after in (False, True)]
    results = zip(each, sync_laboratory.run_all("engine_fails", each), strict=True)
    assert [f"{arguments}: {told}" for arguments, complaints in results for told in complaints] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_stamps_requests_and_reports_pass_between_two_servers_of_one_ledger_of_which_one_is_killed(
    sync_laboratory: Pool,
):
    each = [{"victim": victim} for victim in ("server", "server-1")]
    results = zip(each, sync_laboratory.run_all("two_data_servers", each), strict=True)
    assert [f"{arguments}: {told}" for arguments, complaints in results for told in complaints] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["lost", "doubled", "delayed", "repeated"])
def test_prepares_commits_and_aborts_may_be_lost_doubled_or_late(sync_laboratory: Pool, kind: str):
    assert sync_laboratory.run("calls_go_astray", kind=kind) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("field", ["shape", "dtype"])
def test_an_engine_whose_model_does_not_match_is_left_out(sync_laboratory: Pool, field: str):
    assert sync_laboratory.run("engine_holds_another_model", field=field) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "story",
    [
        "engine_joins_late",
        "engine_comes_back_with_old_weights",
        "engine_is_killed_while_asleep",
        "two_orchestrators",
        "no_orchestrator",
        "orchestrator_comes_late",
        "server_killed_while_an_eval_holds",
        "rewound_while_an_eval_runs",
        "two_trainers",
    ],
)
def test_whoever_comes_late_goes_away_or_comes_twice_harms_nobody(sync_laboratory: Pool, story: str):
    assert sync_laboratory.run(story) == []
