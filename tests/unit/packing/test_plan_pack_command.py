"""`dataserver plan pack` and `plan compare`: what they print can be checked with a few lines."""

import json

import numpy as np
import pytest

from dataserver.cli.main import main
from dataserver.run_spec import PackingPolicy

LENGTHS = [90, 64, 10, 33, 2, 71, 8, 8, 50, 100, 12, 40, 77, 31, 5, 60]
LINEAR, QUADRATIC = 10, 3


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("\n".join(map(str, LENGTHS)))
    return path


@pytest.fixture
def run(file, capsys):
    def run(*arguments, lengths=None):
        given = [*arguments, "--lengths", str(lengths or file), "--world-size", "2", "--capacity", "128"]
        status = main(["plan", *given, "--cost", f"{LINEAR},{QUADRATIC}"])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.mark.parametrize("policy", PackingPolicy)
@pytest.mark.parametrize("budget", [(), ("--step-tokens", "200"), ("--step-samples", "5"), ("--step-rounds", "1")])
def test_the_figures_are_those_of_the_rounds_that_are_printed(run, policy, budget):
    status, out, _ = run("pack", "--json", "--align", "8", "--policy", policy.value, *budget)
    assert status == 0
    steps = json.loads(out)["steps"]
    packed = [sample for step in steps for group in step["rounds"] for bin_ in group for sample in bin_]
    assert sorted(packed) == list(range(len(LENGTHS)))
    for step in steps:
        assert {len(group) for group in step["rounds"]} == {2}
        used = [sum(-(-LENGTHS[i] // 8) * 8 for i in bin_) for group in step["rounds"] for bin_ in group]
        assert max(used) <= 128
        table = np.array(
            [
                [sum(LINEAR * LENGTHS[i] + QUADRATIC * LENGTHS[i] ** 2 for i in bin_) for bin_ in group]
                for group in step["rounds"]
            ]
        )
        tokens = sum(LENGTHS[i] for group in step["rounds"] for bin_ in group for i in bin_)
        assert step["figures"]["token_efficiency"] == pytest.approx(tokens / (len(used) * 128))
        assert step["figures"]["rank_imbalance"] == pytest.approx(table.sum(axis=0).max() / table.sum(axis=0).mean())
        assert step["figures"]["round_inflation"] == pytest.approx(table.max(axis=1).sum() / table.mean(axis=1).sum())
        assert step["figures"]["token_efficiency"] <= step["bounds"]["token_efficiency"]
        assert step["bounds"]["token_efficiency"] == pytest.approx(-(-tokens // 128) / len(used))
        for figure in ("rank_imbalance", "round_inflation"):
            assert step["figures"][figure] >= step["bounds"][figure] * (1 - 1e-9)
            assert step["bounds"][figure] >= 1


def test_rounds_are_counted_where_they_are_the_budget(run):
    steps = json.loads(run("pack", "--json", "--step-rounds", "2")[1])["steps"]
    assert [len(step["rounds"]) for step in steps] == [2] * len(steps)
    assert len(steps) == 2


def test_a_window_moves_samples_between_its_steps_and_loses_none(run):
    steps = json.loads(run("pack", "--json", "--step-tokens", "200", "--lookahead", "2")[1])["steps"]
    packed = [sample for step in steps for group in step["rounds"] for bin_ in group for sample in bin_]
    assert sorted(packed) == list(range(len(LENGTHS)))


def test_people_get_the_figures_and_a_picture(run, tmp_path):
    status, out, _ = run("pack", "--step-tokens", "200", "--png", str(tmp_path / "plan.png"))
    assert status == 0
    assert "round inflation" in out
    assert "round   0 |" in out
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_all_policies_stand_side_by_side(run):
    rows = json.loads(run("compare", "--json", "--step-tokens", "200")[1])["policies"]
    assert [row["policy"] for row in rows] == [policy.value for policy in PackingPolicy]
    by_policy = {row["policy"]: row for row in rows}
    assert by_policy["balanced"]["round_inflation"] <= by_policy["first_fit"]["round_inflation"]
    for row in rows:
        assert row["token_efficiency"] <= row["at_most"]
        assert row["round_inflation"] >= row["at_least"] * (1 - 1e-9)
    out = run("compare")[1]
    assert all(policy.value in out for policy in PackingPolicy)


@pytest.mark.parametrize("name", ["lengths.npy", "lengths.json"])
def test_lengths_come_in_several_forms(run, tmp_path, name):
    path = tmp_path / name
    if name.endswith("npy"):
        np.save(path, np.array(LENGTHS, dtype=np.int32))
    else:
        path.write_text(json.dumps(LENGTHS))
    assert run("pack", "--json", lengths=path)[1] == run("pack", "--json")[1]


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (None, (), "cannot read the lengths"),
        ("a b", (), "does not hold lengths"),
        ("", (), "at least one"),
        ("5 0", (), "from 1 on"),
        ("129", (), "more than the 128 of a micro-batch"),
        ("100", ("--step-tokens", "99"), "exceeds step_tokens = 99"),
        ("100", ("--step-rounds", "1", "--lookahead", "2"), "lookahead_steps = 2 with step_rounds"),
    ],
)
def test_what_cannot_be_packed_is_refused_in_one_line(run, file, text, arguments, message):
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    status, _, err = run("pack", *arguments)
    assert status == 1
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("holds", ["nothing", "an archive", "objects"])
def test_a_file_of_numpy_that_holds_no_lengths_is_refused_in_one_line(run, tmp_path, holds):
    path = tmp_path / "lengths.npy"
    with path.open("wb") as file:
        if holds == "an archive":
            np.savez(file, lengths=LENGTHS)
        elif holds == "objects":
            np.save(file, np.array([1, "a"], dtype=object), allow_pickle=True)
    status, _, err = run("pack", lengths=path)
    assert status == 1
    assert "lengths.npy does not hold lengths" in err
    assert err.count("\n") == 1


def test_the_cost_of_a_model_is_read_from_its_configuration(file, tmp_path, capsys):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(sizes | {"vocab_size": 32}))
    arguments = ["plan", "pack", "--lengths", str(file), "--world-size", "2", "--capacity", "128", "--json"]
    said = []
    for cost in (["--model", str(tmp_path / "config.json")], ["--cost", "17408,64"]):
        assert main([*arguments, *cost]) == 0
        said.append(capsys.readouterr())
    assert said[0] == said[1]
    assert said[0].err == ""


def test_without_a_model_it_says_that_every_token_costs_the_same(file, capsys):
    arguments = ["--lengths", str(file), "--world-size", "2", "--capacity", "128", "--json"]
    assert main(["plan", "pack", *arguments]) == 0
    assert "every token costs the same" in capsys.readouterr().err
