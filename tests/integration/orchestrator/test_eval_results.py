"""Results stay as they were first written, in SQLite and in PostgreSQL, and leave as CSV, JSON and pictures."""

import csv
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from dataserver.database import open_database
from dataserver.errors import InvalidConfigError, OutOfRangeError
from dataserver.ledger import open_ledger
from dataserver.weight_sync import PolicyVersion
from orchestrator.results import Answer, EvalResult, EvalState, ResultsTable, VersionTokens, open_results, schema
from orchestrator.results.curves import draw_curves, missed_dues, standing_results
from orchestrator.results.export import plain_answer, write_csv, write_json
from orchestrator.results.records import summed

FIVE = PolicyVersion(attempt=1, number=5)
SIX = PolicyVersion(attempt=1, number=6)
RESULT = EvalResult(
    run="chat",
    run_uid="a" * 32,
    name="reverse",
    version=FIVE,
    due=5,
    state=EvalState.DONE,
    samples=2,
    scored=2,
    figures={"mean": 0.5, "pass@1": 0.1 + 0.2},
    version_tokens=(VersionTokens(version=FIVE, tokens=7), VersionTokens(version=SIX, tokens=3)),
    create_time=1000.125,
    end_time=1010.5,
)
ANSWERS = [
    Answer(
        prompt=0,
        sample=sample,
        reward=float(sample),
        text="olleh\nwörld 🙂",
        tokens=5,
        finish_reason="stop",
        version_tokens=(VersionTokens(version=FIVE, tokens=5),),
        engine="a",
    )
    for sample in range(2)
]


def empty(url: str) -> None:
    database = open_database(url, what="results", prepare=schema.prepare)
    for table in (schema.answers, schema.results, schema.triggers):
        database.write(lambda c, table=table: c.execute(delete(table)))
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/evals.db"
    url = request.getfixturevalue("postgres").url
    empty(url)
    return url


@pytest.fixture
def table(url: str) -> Iterator[ResultsTable]:
    table = open_results(url)
    yield table
    table.close()


def test_a_result_comes_back_as_it_was_written_to_the_last_bit(table, url):
    assert table.record(RESULT, ANSWERS) == RESULT
    again = open_results(url)
    assert again.of_run(RESULT.run_uid) == [RESULT]
    assert again.answers_of(RESULT) == ANSWERS
    again.close()


def test_what_stands_is_what_was_written_first(table):
    table.record(RESULT, ANSWERS)
    other = replace(RESULT, state=EvalState.FAILED, figures={}, detail="late")
    assert table.record(other) == RESULT
    assert table.of_run(RESULT.run_uid) == [RESULT]
    assert table.answers_of(RESULT) == ANSWERS


def test_of_writers_at_once_one_wins_and_all_are_told_the_same(table):
    told, writers = [], []
    for number in range(4):
        result = replace(RESULT, detail=str(number))
        writers.append(threading.Thread(target=lambda result=result: told.append(table.record(result, ANSWERS))))
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len({result.detail for result in told}) == 1
    assert len(table.of_run(RESULT.run_uid)) == 1


def test_results_are_kept_apart_by_attempt_version_name_and_run(table):
    others = [
        replace(RESULT, version=SIX, end_time=1011.0),
        replace(RESULT, version=PolicyVersion(attempt=2, number=5), end_time=1012.0),
        replace(RESULT, name="sums", end_time=1013.0),
        replace(RESULT, run="other", run_uid="b" * 32, end_time=1014.0),
    ]
    for result in [RESULT, *others]:
        table.record(result)
    assert table.of_run(RESULT.run_uid) == [RESULT, *others[:3]]
    assert table.find(run="chat", name="sums") == [others[2]]
    assert table.find() == [RESULT, *others]


def test_a_run_that_comes_again_under_its_name_begins_without_results(table):
    table.record(RESULT)
    table.trigger(RESULT.run_uid, "reverse", 7, now=1.0)
    assert table.of_run("c" * 32) == []
    assert table.triggers_of("c" * 32) == []


def test_a_trigger_is_noted_once(table):
    for _ in range(2):
        table.trigger("uid", "reverse", 7, now=1.0)
    table.trigger("uid", "sums", 7, now=2.0)
    assert sorted(table.triggers_of("uid")) == [("reverse", 7), ("sums", 7)]


def test_text_that_no_database_takes_is_kept_as_far_as_it_can_be(table):
    table.record(RESULT, [replace(ANSWERS[0], text="a\0b\ud800c")])
    assert table.answers_of(RESULT)[0].text == "a\ufffdb?c"


def test_results_lie_beside_a_ledger_in_one_database(url, table):
    ledger = open_ledger(url, lease_s=30)
    table.record(RESULT)
    assert table.of_run(RESULT.run_uid) == [RESULT]
    ledger.close()


def test_another_schema_is_refused_with_what_to_do(url):
    database = open_database(url, what="results", prepare=schema.prepare)
    database.write(lambda c: c.execute(update(schema.schema_version).values(version=99)))
    try:
        with pytest.raises(InvalidConfigError, match=r"^results .* has schema 99, .*name another database"):
            open_results(url)
    finally:
        database.write(lambda c: c.execute(update(schema.schema_version).values(version=schema.SCHEMA_VERSION)))
        database.close()


def test_a_result_that_has_not_ended_is_not_written(table):
    with pytest.raises(ValueError, match="has not ended"):
        table.record(replace(RESULT, end_time=None))


def test_csv_and_json_say_what_the_table_says():
    failed = replace(RESULT, name="sums", state=EvalState.FAILED, figures={"mean": 0.25}, detail='no "engine"')
    out = io.StringIO()
    write_csv([RESULT, failed], out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [float(row["mean"]) for row in rows] == [0.5, 0.25]
    assert [row["pass@1"] for row in rows] == [repr(0.1 + 0.2), ""]
    assert [row["versions"] for row in rows] == ["1.5:7 1.6:3"] * 2
    assert rows[1]["detail"] == 'no "engine"'
    out = io.StringIO()
    write_json([RESULT], out)
    [plain] = json.loads(out.getvalue())
    assert (plain["eval_id"], plain["versions"]) == ("chat/1.5/reverse", {"1.5": 7, "1.6": 3})
    assert plain["figures"] == RESULT.figures
    assert json.loads(json.dumps(plain_answer(ANSWERS[1])))["reward"] == 1.0


def test_tokens_are_summed_by_version_and_labels_of_others_name_none():
    parts = [VersionTokens(version=version, tokens=2) for version in (SIX, FIVE, None, SIX)]
    assert [(part.version, part.tokens) for part in summed(parts)] == [(None, 2), (FIVE, 2), (SIX, 4)]
    assert PolicyVersion.parse(str(SIX)) == SIX
    assert [PolicyVersion.parse(text) for text in ("default", "1.x", "1", "")] == [None] * 4


def at(attempt: int, number: int) -> EvalResult:
    return replace(RESULT, version=PolicyVersion(attempt=attempt, number=number))


def test_a_curve_follows_the_weights_that_stand():
    results = [at(1, 0), at(1, 5), at(1, 10), at(2, 8), at(2, 10), at(3, 15)]
    standing = [str(each.version) for each in standing_results(results)]
    assert standing == ["1.0", "1.5", "2.8", "2.10", "3.15"]


def test_what_was_missed_is_told_with_the_version_that_it_was_asked_of(table, tmp_path):
    missed = replace(
        at(1, 20), due=15, state=EvalState.MISSED, scored=0, figures={}, version_tokens=(), detail="never landed"
    )
    assert table.record(missed, ()) == missed
    assert table.of_run(RESULT.run_uid) == [missed]
    out = io.StringIO()
    write_csv([missed], out)
    [row] = csv.DictReader(io.StringIO(out.getvalue()))
    assert (row["state"], row["due"], row["detail"]) == ("missed", "15", "never landed")
    assert missed_dues([missed, at(1, 5)], name=missed.name, run=missed.run) == [15]
    draw_curves([at(1, 0), at(1, 5)], tmp_path / "without.png")
    draw_curves([at(1, 0), at(1, 5), replace(at(1, 5), name="sums"), missed], tmp_path / "with.png")
    assert (tmp_path / "with.png").read_bytes() != (tmp_path / "without.png").read_bytes()


def test_curves_are_drawn_and_an_unknown_figure_is_refused_with_those_there_are(tmp_path):
    results = [at(1, 0), at(1, 5), at(2, 5), replace(at(1, 5), name="sums"), replace(at(1, 5), run="other")]
    draw_curves(results, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OutOfRangeError, match=r"no result has the figure 'median'; .*mean, pass@1"):
        draw_curves(results, tmp_path / "curves.png", figure="median")
    with pytest.raises(InvalidConfigError, match="cannot write the picture"):
        draw_curves(results, tmp_path / "nosuch" / "curves.png")
