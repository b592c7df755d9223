"""`orchestrator evals`: results are listed, exported and drawn from their database, whoever runs or does not."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from dataserver.weight_sync import PolicyVersion
from orchestrator.cli.main import main
from orchestrator.results import Answer, EvalResult, EvalState, VersionTokens, open_results

FIVE = PolicyVersion(attempt=1, number=5)
RESULT = EvalResult(
    run="chat",
    run_uid="a" * 32,
    name="reverse",
    version=FIVE,
    due=5,
    state=EvalState.DONE,
    samples=1,
    scored=1,
    figures={"mean": 0.5, "seconds": 2.0},
    version_tokens=(VersionTokens(version=FIVE, tokens=7),),
    create_time=1000.0,
    end_time=1010.0,
)
ANSWER = Answer(
    prompt=0,
    sample=0,
    reward=0.5,
    text="olleh",
    tokens=7,
    finish_reason="stop",
    version_tokens=RESULT.version_tokens,
    engine="a",
)


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/evals.db"
    table = open_results(url)
    table.record(RESULT, [ANSWER])
    table.record(replace(RESULT, version=PolicyVersion(attempt=1, number=10), end_time=1020.0))
    table.record(replace(RESULT, name="sums", state=EvalState.FAILED, detail="gave up", figures={}, end_time=1030.0))
    table.close()
    return url


def test_results_are_listed_the_newest_first(database, capsys):
    assert main(["evals", "list", "--database", database, "--limit", "2"]) == 0
    header, *lines, rest = capsys.readouterr().out.splitlines()
    assert header.split() == ["eval", "state", "mean", "scored", "versions", "seconds", "ended", "detail"]
    assert [line.split()[0] for line in lines] == ["chat/1.5/sums", "chat/1.10/reverse"]
    assert lines[1].split()[1:3] == ["done", "0.5000"]
    assert rest == "the newest 2 of 3 results; --limit 3 shows all"
    assert main(["evals", "list", "--database", database, "--name", "reverse", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert [(each["version"], each["versions"]) for each in plain] == [(10, {"1.5": 7}), (5, {"1.5": 7})]


def test_results_are_exported_as_a_table_as_objects_or_answer_by_answer(database, tmp_path, capsys):
    for suffix in ("csv", "json", "jsonl"):
        assert main(["evals", "export", f"{tmp_path}/out.{suffix}", "--database", database, "--run", "chat"]) == 0
    assert [row["mean"] for row in csv.DictReader((tmp_path / "out.csv").read_text().splitlines())] == [
        "0.5",
        "0.5",
        "",
    ]
    assert [each["name"] for each in json.loads((tmp_path / "out.json").read_text())] == ["reverse", "reverse", "sums"]
    [answer] = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert (answer["eval_id"], answer["text"], answer["reward"]) == ("chat/1.5/reverse", "olleh", 0.5)


def test_a_curve_is_drawn(database, tmp_path, capsys):
    assert main(["evals", "plot", f"{tmp_path}/curve.png", "--database", database]) == 0
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "mean of 3 results" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["list", "--database", "sqlite:///nosuch.db"], "there are no results in sqlite:///nosuch.db: give --database"),
        (["export", "out.txt"], "out.txt: name a file that ends in .csv, .json or .jsonl"),
        (["plot", "out.png", "--figure", "median"], "no result has the figure 'median'"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(database, monkeypatch, tmp_path, capsys, arguments, told):
    monkeypatch.chdir(tmp_path)
    assert main(["evals", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("orchestrator: ")
    assert told in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "nosuch.db").exists()
