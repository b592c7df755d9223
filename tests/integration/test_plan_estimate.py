"""`dataserver plan estimate` against runs that are planned to their end."""

import json

import pytest

from dataserver.cli.main import main
from dataserver.testing import write_store

LENGTHS = {"chat": [5, 9, 30, 12, 7, 22] * 30, "code": [40, 64, 18, 100] * 20}

SPEC = """
[run]
name = "trial"
[run.order]
sources = [{ store = "chat" }, { store = "code" }]
max_length = 64
[run.batch]
micro_batch_tokens = 128
alignment = 8
"""


@pytest.fixture
def estimate(tmp_path, monkeypatch, capsys):
    """`plan estimate` with these lines of `[run.batch]`, and `spec` before them."""

    monkeypatch.setenv("HOME", str(tmp_path))
    stores = [f"--store={name}={write_store(tmp_path / name, lengths=lengths)}" for name, lengths in LENGTHS.items()]

    def run(*batch, arguments=("--json",), spec=SPEC):
        (tmp_path / "train.toml").write_text(spec + "\n".join(batch))
        status = main(["plan", "estimate", str(tmp_path / "train.toml"), "--world-size", "4", *stores, *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def served(name):
    return [min(length, 64) for length in LENGTHS[name]]


def test_stores_are_counted_exactly(estimate):
    status, out, err = estimate("step_samples = 10")
    assert (status, err) == (0, "")
    sources = {source["store"]: source for source in json.loads(out)["sources"]}
    total = sum(sum(served(name)) for name in LENGTHS)
    for name, source in sources.items():
        assert source["epoch_tokens"] == sum(served(name))
        assert source["cut_tokens"] == sum(LENGTHS[name]) - sum(served(name))
        assert source["share"] == pytest.approx(sum(served(name)) / total)


def test_steps_and_epochs_follow_from_the_bounds_of_the_run(estimate):
    one = json.loads(estimate("step_samples = 10")[1])
    assert one["epochs"] == 1
    assert one["steps"] == pytest.approx(26, abs=4)
    two = json.loads(estimate("step_samples = 10", "max_epochs = 2")[1])
    assert two["steps"] == pytest.approx(2 * one["steps"], abs=1)
    some = json.loads(estimate("step_samples = 10", "max_steps = 20", "max_epochs = 2")[1])
    assert some["steps"] == 20
    assert 0.6 < some["epochs"] < 0.95
    few = json.loads(estimate("step_samples = 10", "max_steps = 3")[1])
    assert (few["steps"], few["steps_planned"]) == (3, 3)


def test_weighted_sources_are_counted_by_what_an_epoch_takes_of_them(estimate):
    weighted = SPEC.replace(
        'sources = [{ store = "chat" }, { store = "code" }]',
        'sources = [{ store = "chat", weight = 1 }, { store = "code", weight = 3 }]\nweight_unit = "tokens"',
    )
    said = json.loads(estimate("step_samples = 10", "max_epochs = 2", spec=weighted)[1])
    chat, code = said["sources"]
    assert (chat["share"], code["share"]) == pytest.approx((0.25, 0.75), rel=0.02)
    # Chat is the last to be gone through, once; code is repeated, so that it has three times the tokens.
    assert chat["epoch_tokens"] == sum(served("chat"))
    assert code["repeats"] == pytest.approx(2 * 3 * sum(served("chat")) / sum(served("code")), rel=0.02)
    assert said["epoch_samples"] == pytest.approx(180 + 80 * code["repeats"] / 2, abs=1)
    assert said["tokens"] == chat["tokens"] + code["tokens"]


def test_a_source_that_is_off_is_shown_as_that(estimate):
    off = SPEC.replace('"chat" }, { store = "code" }', '"chat", weight = 1 }, { store = "code", weight = 0 }')
    said = json.loads(estimate("step_samples = 10", spec=off)[1])
    assert [source["repeats"] for source in said["sources"]] == [1, 0]
    assert said["epoch_samples"] == 180


def test_people_get_a_line_for_each_store(estimate):
    status, out, _ = estimate("step_tokens = 400", arguments=())
    assert status == 0
    assert "round inflation" in out
    assert [line.split(":")[0] for line in out.splitlines()[-2:]] == ["chat", "code"]


def test_a_spec_that_is_none_is_refused_in_one_line(estimate):
    status, out, err = estimate("step_tokens = 400", "step_samples = 3")
    assert (status, out) == (1, "")
    assert "exactly one of" in err
    assert err.count("\n") == 1


def test_a_budget_by_which_some_steps_take_another_round_is_warned_of(estimate):
    even = ("step_tokens = 400",)
    assert "warning" not in estimate(*even, arguments=())[1]
    tight = ("step_tokens = 512",)
    counted = json.loads(estimate(*tight)[1])
    assert counted["fewest_rounds"] < counted["step_rounds"] < counted["most_rounds"]
    assert "lower step_tokens by a per cent or two, or give step_rounds" in estimate(*tight, arguments=())[1]


def test_a_store_that_is_admitted_lazily_is_no_ground_for_an_estimate(estimate, tmp_path):
    (tmp_path / "server.toml").write_text(f'[stores.web]\npath = "{tmp_path}/chat"\nadmission = "lazy"\n')
    spec = SPEC.replace('{ store = "code" }', '{ store = "web" }')
    config = f"--config={tmp_path}/server.toml"
    status, out, err = estimate("step_samples = 10", spec=spec, arguments=(config,))
    assert status != 0
    assert out == ""
    assert "store 'web' is admitted lazily" in err
    assert "dataserver store index" in err
