"""`dataserver run`, `cursor` and `plan` against a real server."""

import json

import pytest

from dataserver.cli.main import main
from dataserver.client import DataClient
from dataserver.testing import running_server, write_store

SPEC = """
[order]
sources = [{ store = "chat" }]
max_length = 32

[batch]
step_tokens = 128
micro_batch_tokens = 32
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    store = write_store(tmp_path_factory.mktemp("stores") / "chat", lengths=[5, 9, 4, 30, 12, 8, 20, 3] * 8)
    with running_server({"chat": store}) as running:
        yield running


@pytest.fixture
def dataserver(server, capsys):
    """Run a command; returns exit status, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main([*arguments, "--endpoint", server.endpoint])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def run(server, tmp_path, request, dataserver):
    """A run of the test's own with two committed steps."""
    name = request.node.name[:100].replace("[", "-").replace("]", "")
    (tmp_path / "spec.toml").write_text(SPEC)
    assert dataserver("run", "create", name, str(tmp_path / "spec.toml"))[0] == 0
    with DataClient(server.endpoint) as client:
        attempt = client.begin_attempt(name, resume=False, world_size=1, dp_world_size=1, holder="launch-7")
        with client.stream(name, attempt, world_rank=0, dp_rank=0, next_step=1) as stream:
            for step in stream:
                list(step)
                stream.ack(step)
                client.commit_cursor(name, attempt, step.end, f"file:///checkpoints/{step.number}")
                if step.number == 2:
                    break
    return name


def test_a_run_is_created_from_a_spec_file_or_a_trainers_file(dataserver, tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    tables = SPEC.replace("[order]", "[run.order]").replace("[batch]", "[run.batch]")
    (tmp_path / "trainer.toml").write_text(f'[run]\nname = "twice"\n{tables}\n[optim]\nlr = 1e-5\n')
    status, out, _ = dataserver("run", "create", "twice", str(tmp_path / "spec.toml"))
    assert (status, out.startswith("run twice: 64 samples in an epoch, order ")) == (0, True)
    assert dataserver("run", "create", "twice", str(tmp_path / "trainer.toml")) == (0, out, "")


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (SPEC.replace("max_length = 32", "max_length = 64"), "micro_batch_tokens = 32 is below the 64 tokens"),
        (SPEC.replace("max_length", "longest"), "order.longest"),
        (SPEC.replace('"chat"', '"nowhere"'), "nowhere"),
        ("[order", "is not TOML"),
        ("run = 3", "order"),
    ],
)
def test_a_spec_that_cannot_be_carried_out_is_refused_in_one_line(dataserver, tmp_path, spec, complaint):
    (tmp_path / "spec.toml").write_text(spec)
    status, out, err = dataserver("run", "create", "refused", str(tmp_path / "spec.toml"))
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert complaint in err


def test_runs_are_listed(dataserver, run):
    _, out, _ = dataserver("run", "list")
    row = next(line.split() for line in out.splitlines() if line.split()[0] == run)
    assert (row[1:3], row[4:6]) == (["attempt", "1"], ["2", "2"])
    listed = json.loads(dataserver("run", "list", "--json")[1])
    found = next(item for item in listed if item["name"] == run)
    assert found["committed"]["step"] == 2
    assert [source["store"] for source in found["spec"]["order"]["sources"]] == ["chat"]
    assert found["attempt"]["holder"] == "launch-7"


def test_a_run_is_shown_with_its_history(dataserver, run):
    status, out, _ = dataserver("run", "show", run)
    assert status == 0
    for fact in (
        "launch-7", "step 2: stage 0, epoch 0", "from step 1: chat",
        "attempt_begun", "file:///checkpoints/2", "step_tokens 128", "(100.00%)",
    ):  # fmt: skip
        assert fact in out
    shown = json.loads(dataserver("run", "show", run, "--json")[1])
    assert [event["kind"] for event in shown["events"]] == ["committed", "committed", "attempt_begun", "created"]
    assert shown["run"]["acked_steps"] == [2]
    totals = shown["run"]["totals"]
    assert totals["steps"] == shown["run"]["sealed_step"]
    assert out.count("token efficiency") == out.count("round inflation") == 2
    assert "mean of " in out


def test_a_run_is_rewound_and_deleted(dataserver, run):
    status, out, _ = dataserver("run", "rewind", run, "--version", "1")
    assert (status, out) == (0, f"run {run} stands at step 1; attempts up to 2 are over\n")
    assert json.loads(dataserver("run", "show", run, "--json")[1])["run"]["committed"]["step"] == 1
    assert dataserver("run", "delete", run) == (0, f"run {run} is deleted\n", "")
    status, out, err = dataserver("run", "show", run)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert run in err


def test_a_version_that_the_ledger_does_not_know_is_refused(dataserver, run):
    status, out, err = dataserver("cursor", "show", run, "--version", "99")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "99" in err


def test_the_cursor_is_shown_with_all_commits_or_of_one_version(dataserver, run):
    _, out, _ = dataserver("cursor", "show", run)
    assert out.splitlines()[0].split() == ["step", "2"]
    assert "file:///checkpoints/1" in out
    shown = json.loads(dataserver("cursor", "show", run, "--json")[1])
    assert (shown["cursor"]["step"], shown["checkpoint_uri"]) == (2, "file:///checkpoints/2")
    assert [commit["cursor"]["step"] for commit in shown["commits"]] == [2, 1]
    shown = json.loads(dataserver("cursor", "show", run, "--version", "1", "--json")[1])
    assert shown.keys() == {"cursor", "checkpoint_uri"}
    assert shown["cursor"]["step"] == 1


def test_long_lists_show_the_newest_and_say_how_many_there_are(dataserver, run):
    _, out, _ = dataserver("cursor", "show", run, "--limit", "1")
    assert "file:///checkpoints/1" not in out
    assert out.splitlines()[-1] == "the newest 1 of 2 commits; --limit 2 shows all"
    shown = json.loads(dataserver("cursor", "show", run, "--limit", "1", "--json")[1])
    assert (shown["commit_count"], [commit["cursor"]["step"] for commit in shown["commits"]]) == (2, [2])
    _, out, _ = dataserver("run", "show", run, "--limit", "3")
    assert out.splitlines()[-1] == "the newest 3 of 4 events; --limit 4 shows all"
    assert "the newest" not in dataserver("run", "show", run)[1]


def test_a_run_is_amended_from_a_spec_file(dataserver, run, tmp_path):
    (tmp_path / "later.toml").write_text(SPEC.replace("max_length = 32", "max_length = 16\nseed = 9"))
    amend = ("run", "amend", run, "--first-step", "9", "--spec", str(tmp_path / "later.toml"))
    assert dataserver(*amend) == (0, f"run {run}: stage 1 begins with step 9\n", "")
    assert dataserver(*amend)[0] == 0
    _, out, _ = dataserver("run", "show", run)
    assert "from step 9: chat" in out
    assert "seed 9, max_length 16" in out
    assert "amended" in out
    assert "stage 1" in dataserver("plan", "show", run, "--steps", "9:10")[1]
    (tmp_path / "later.toml").write_text(SPEC)
    status, out, err = dataserver(*amend)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "seed (there: 9, asked: 0), max_length (there: 16, asked: 32)" in err
    early = ("run", "amend", run, "--first-step", "2", "--spec", str(tmp_path / "later.toml"))
    assert "stage 1 begins with step 9" in dataserver(*early)[2]
    (tmp_path / "later.toml").write_text("[batch]\nstep_tokens = 3\n")
    assert "no table [order]" in dataserver(*amend)[2]


def test_plans_are_shown_by_rank_and_round_with_their_three_figures(dataserver, run):
    status, out, _ = dataserver("plan", "show", run, "--steps", "2:4", "--world-size", "2")
    assert status == 0
    assert [line.split()[1] for line in out.splitlines() if line.startswith("step ")] == ["2", "3"]
    assert out.count("token efficiency") == out.count("rank imbalance") == out.count("round inflation") == 2
    assert "rank 1" in out
    assert "rank 2" not in out
    plans = json.loads(dataserver("plan", "show", run, "--steps", "2:4", "--world-size", "2", "--json")[1])
    assert [plan["step"] for plan in plans] == [2, 3]
    for plan in plans:
        samples = [sample for planned in plan["micro_batches"] for sample in planned["samples"]]
        assert len({sample["row"] for sample in samples}) == len(samples) == plan["sample_count"]
        assert sum(sample["length"] for sample in samples) == plan["token_count"]
        assert {planned["dp_rank"] for planned in plan["micro_batches"]} == {0, 1}
        assert 0 < plan["figures"]["token_efficiency"] <= 1 <= plan["figures"]["round_inflation"]
        assert f"tokens by store: chat {plan['token_count']} (100.0%)" in out
        first = plan["micro_batches"][0]["samples"][0]
        assert f"chat:{first['row']} ({first['length']})" in out


def test_the_plan_of_a_sealed_step_is_as_it_was_sealed(dataserver, run):
    plans = json.loads(dataserver("plan", "show", run, "--steps", "1:2", "--json")[1])
    assert (plans[0]["attempt"], plans[0]["dp_world_size"]) == (1, 1)


@pytest.mark.parametrize("steps", ["1", "0:2", "3:3", "a:b", "1:", "-1:2"])
def test_steps_that_are_no_range_are_refused(dataserver, steps):
    status, out, err = dataserver("plan", "show", "whatever", f"--steps={steps}")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert f"--steps {steps}" in err


def test_a_server_that_is_not_there_is_named(capsys, monkeypatch):
    monkeypatch.setattr("dataserver.cli.remote._PATIENCE_S", 0.1)
    assert main(["run", "list", "--endpoint", "127.0.0.1:1"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "127.0.0.1:1" in err


def test_a_missing_token_file_is_named(dataserver, tmp_path):
    status, _, err = dataserver("run", "list", "--token-file", str(tmp_path / "token"))
    assert (status, err.count("\n")) == (1, 1)
    assert str(tmp_path / "token") in err
