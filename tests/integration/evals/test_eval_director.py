"""Evals begin, run and end as the schedule says; restarts lose nothing and repeat nothing."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from evallab.engines import gone
from evallab.run import Run, a_run, eval_config, version, write_prompts

from dataserver.errors import InvalidRequestError, OutOfRangeError, PreconditionError, UnavailableError
from dataserver.sinks import JsonLines
from dataserver.wire.runs import RunEventInfo
from orchestrator.evals import director, outcome, sampling
from orchestrator.evals.history import history_of
from orchestrator.results import EvalState
from orchestrator.wants import Wants


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "FIRST_PAUSE_S", 1e-4)
    monkeypatch.setattr(outcome, "RETRY_S", 1e-3)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write_prompts(tmp_path / "prompts.jsonl", 4)


@pytest.fixture
def run(tmp_path: Path, prompts: Path) -> Iterator[Run]:
    with a_run(tmp_path, [eval_config(prompts)]) as run:
        yield run


async def known(run: Run) -> None:
    """Until the director knows the run."""
    run.look()
    await run.until(lambda: run.wanted != Wants())


async def test_an_eval_is_queued_begins_when_its_version_lands_and_stands_in_the_table(run):
    await known(run)
    assert run.wanted == Wants(versions=frozenset(range(5, 45, 5)), last=True, hold=True)
    assert [(view.state, view.version) for view in run.director.book.views()] == [(EvalState.QUEUED, version(0))]
    run.land(version(0))
    await run.until(lambda: not run.director.book.running and run.measured)
    assert run.measured == ["reverse@1.0"]
    assert not run.wanted.hold
    [result] = run.results.of_run(run.uid)
    assert (result.state, result.scored, result.samples, result.detail) == (EvalState.DONE, 4, 4, "")
    assert result.figures["mean"] == result.figures["pass@1"] == 1.0
    assert [(str(part.version), part.tokens) for part in result.version_tokens] == [("1.0", 24)]
    assert len(run.results.answers_of(result)) == 4
    assert not run.director.idle


async def test_a_live_eval_holds_to_its_end_and_counts_the_tokens_of_each_version(run):
    await known(run)
    run.engines[0].gate.clear()
    run.land(version(0))
    await run.engines[0].busy(4)
    run.step(1)
    assert run.wanted.hold
    run.land(version(1))
    assert [view.state for view in run.director.book.views()] == [EvalState.RUNNING]
    run.engines[0].gate.set()
    await run.until(lambda: bool(run.measured))
    [result] = run.results.of_run(run.uid)
    assert [(str(part.version), part.tokens) for part in result.version_tokens] == [("1.0", 12), ("1.1", 12)]
    assert result.version == version(0)


async def test_the_run_ends_when_the_last_version_is_measured(run):
    await known(run)
    run.land(version(0))
    await run.until(lambda: run.measured == ["reverse@1.0"])
    run.step(7, last_sealed=True)
    assert (run.wanted.last, run.director.idle) == (True, False)
    run.land(version(7))
    await run.until(lambda: run.director.idle)
    assert run.measured == ["reverse@1.0", "reverse@1.7"]
    assert run.wanted == Wants()
    assert run.results.of_run(run.uid)[1].due == 5


async def test_a_restart_repeats_nothing_that_ended_and_forgets_nothing_that_ran(run):
    await known(run)
    run.land(version(0))
    await run.until(lambda: run.measured == ["reverse@1.0"])
    run.engines[0].gate.clear()
    run.step(5)
    run.land(version(5))
    await run.engines[0].busy(4)
    await run.director.close()
    assert run.engines[0].in_flight == 0
    run.engines[0].gate.set()
    run.new_director()
    run.look()
    await run.until(lambda: len(run.measured) == 2)
    assert run.measured == ["reverse@1.0", "reverse@1.5"]
    prompts = [prompt for prompt, _ in run.engines[0].calls]
    assert len(prompts) == 12


@pytest.mark.parametrize("away", [False, True], ids=["unseen", "away"])
async def test_a_restart_after_the_end_of_the_run_waits_to_see_what_engines_serve(run, away):
    await known(run)
    run.land(version(0))
    await run.until(lambda: run.measured == ["reverse@1.0"])
    run.engines[0].gate.clear()
    run.step(5, last_sealed=True)
    run.land(version(5))
    run.note(ended=True)
    await run.engines[0].busy(4)
    await run.director.close()
    run.pool.forget()
    run.new_director()
    run.look()
    await run.until(lambda: [due.number for due in run.director.book.queued] == [5])
    if away:
        run.pool.lose(run.pool.members[0], "no answer")
        run.look()
    assert not run.director.idle
    run.engines[0].gate.set()
    run.pool.see(run.pool.members[0], run.engines[0].label, workers=1)
    run.look()
    await run.until(lambda: run.director.idle)
    assert [(str(each.version), each.state) for each in run.results.of_run(run.uid)] == [
        ("1.0", EvalState.DONE),
        ("1.5", EvalState.DONE),
    ]


async def test_an_engine_that_stays_away_after_the_end_of_the_run_is_not_awaited_for_ever(tmp_path, prompts):
    with a_run(tmp_path, [eval_config(prompts, drain_timeout_s=0.05)]) as run:
        run.pool.lose(run.pool.members[0], "no answer")
        run.step(5, last_sealed=True, ended=True)
        await run.until(lambda: run.director.idle and run.measured == ["reverse@1.5"])
        [result] = run.results.of_run(run.uid)
        assert result.state is EvalState.MISSED


async def test_a_rewind_cancels_what_measures_dropped_weights_and_says_so(run):
    await known(run)
    run.land(version(0))
    await run.until(lambda: run.measured == ["reverse@1.0"])
    run.engines[0].gate.clear()
    run.step(5)
    run.land(version(5))
    await run.engines[0].busy(4)
    run.bases.append((2, 3))
    run.note(attempt=2, sealed_step=3, consumed_step=3, landed=None)
    await run.until(lambda: len(run.measured) == 2)
    dropped = run.results.of_run(run.uid)[1]
    assert (str(dropped.version), dropped.state) == ("1.5", EvalState.FAILED)
    assert "dropped by a rewind" in dropped.detail
    run.engines[0].gate.set()
    run.step(5)
    run.land(version(5, attempt=2))
    await run.until(lambda: len(run.measured) == 3)
    assert run.measured[2] == "reverse@2.5"


async def test_a_pinned_eval_whose_engine_is_lost_waits_for_the_next_version(tmp_path, prompts):
    with a_run(tmp_path, [eval_config(prompts, pin=True)]) as run:
        await known(run)
        run.engines[0].gate.clear()
        run.land(version(0))
        await run.engines[0].busy(4)
        assert (run.pool.members[0].pins > 0, run.wanted.hold) == (True, False)
        run.pool.tear(run.pool.members[0], "killed")
        run.look()
        await run.until(lambda: not run.director.book.running)
        assert run.measured == []
        run.engines[0].gate.set()
        run.pool.see(run.pool.members[0], None, workers=1)
        run.step(2)
        assert run.wanted.hold
        run.land(version(2))
        await run.until(lambda: run.measured == ["reverse@1.2"])
        assert run.results.of_run(run.uid)[0].due == 0


async def test_two_evals_run_side_by_side_and_both_are_told_to_every_sink(tmp_path, prompts):
    lines = tmp_path / "evals.jsonl"
    configs = [eval_config(prompts, "a"), eval_config(prompts, "b", pin=True)]
    with closing(JsonLines(lines)) as sink, a_run(tmp_path, configs, engines=2, sinks=[sink]) as run:
        await known(run)
        run.land(version(0))
        await run.until(lambda: len(run.measured) == 2)
        await run.until(lambda: not run.director.book.running)
    told = [json.loads(line) for line in lines.read_text().splitlines()]
    assert sorted(line["eval_id"] for line in told) == ["chat/1.0/a", "chat/1.0/b"]
    assert all(line["figures"]["mean"] == 1.0 for line in told)


async def test_what_fails_is_written_with_the_reason_and_the_run_goes_on(run):
    await known(run)
    run.engines[0].fails = lambda prompt, _calls: gone("engine-0") if prompt == "word-1" else None
    run.land(version(0))
    await run.until(lambda: bool(run.measured))
    [result] = run.results.of_run(run.uid)
    assert (result.state, result.scored) == (EvalState.FAILED, 3)
    assert "gave up 1 of 4 answers" in result.detail
    assert result.figures["mean"] == 1.0
    run.step(5)
    run.engines[0].fails = lambda _prompt, _calls: None
    run.land(version(5))
    await run.until(lambda: run.measured == ["reverse@1.0", "reverse@1.5"])


async def test_an_ended_run_whose_last_version_never_landed_says_what_was_missed(run):
    await known(run)
    run.step(4, last_sealed=True, ended=True)
    await run.until(lambda: run.director.idle and bool(run.measured))
    [result] = run.results.of_run(run.uid)
    assert (str(result.version), result.state, result.due) == ("1.4", EvalState.MISSED, 0)
    assert "the run ended before" in result.detail
    assert "eval_at_end" not in result.detail


async def test_an_orchestrator_does_not_end_before_what_was_missed_is_written(run):
    await known(run)
    run.step(4, last_sealed=True, ended=True)
    assert not run.director.idle
    await run.until(lambda: run.director.idle)
    await run.director.close()
    assert [result.state for result in run.results.of_run(run.uid)] == [EvalState.MISSED]


async def test_a_result_waits_for_its_database_and_is_not_lost(run, monkeypatch):
    await known(run)
    record, tries = run.results.record, []

    def away_at_first(result, answers):
        tries.append(result)
        if len(tries) < 3:
            raise UnavailableError("results: out of reach")
        return record(result, answers)

    monkeypatch.setattr(run.results, "record", away_at_first)
    run.land(version(0))
    await run.until(lambda: bool(run.measured))
    assert len(tries) == 3


class FullDisk:
    def write(self, step, line, scalars):
        raise OSError(28, "No space left on device")

    def close(self):
        pass


async def test_a_sink_that_fails_costs_the_others_nothing_and_the_run_goes_on(tmp_path, prompts):
    lines = tmp_path / "evals.jsonl"
    with (
        closing(JsonLines(lines)) as sink,
        a_run(tmp_path, [eval_config(prompts)], sinks=[FullDisk(), sink]) as run,
    ):
        await known(run)
        run.land(version(0))
        await run.until(lambda: bool(run.measured) and not run.director.book.running)
        assert not run.wanted.hold
        assert [json.loads(line)["eval_id"] for line in lines.read_text().splitlines()] == ["chat/1.0/reverse"]


async def test_a_result_that_the_database_refuses_is_told_as_failed_and_the_run_ends(run, monkeypatch):
    def refuse(*_):
        raise ValueError("no column of that name")

    await known(run)
    monkeypatch.setattr(run.results, "record", refuse)
    run.step(5, last_sealed=True)
    run.land(version(5))
    await run.until(lambda: run.director.idle)
    [view] = run.director.book.views()
    assert (view.state, view.scored) == (EvalState.FAILED, 4)
    assert view.detail == "it could not be written: ValueError: no column of that name"
    assert run.wanted == Wants()


async def test_whatever_keeps_the_history_from_being_read_is_tried_again(run, monkeypatch):
    monkeypatch.setattr(director, "RETRY_S", 1e-3)
    of_run, tries = run.results.of_run, []

    def broken_at_first(uid):
        tries.append(uid)
        if len(tries) < 3:
            raise OSError(28, "No space left on device")
        return of_run(uid)

    monkeypatch.setattr(run.results, "of_run", broken_at_first)
    await known(run)
    assert len(tries) == 3


async def test_what_a_person_asks_for_is_measured_once_and_survives_a_restart(run):
    await known(run)
    run.land(version(0))
    await run.until(lambda: run.measured == ["reverse@1.0"])
    there = await run.director.trigger("reverse", None)
    assert (there.state, there.version) == (EvalState.DONE, version(0))
    waiting = await run.director.trigger("reverse", 3)
    assert (waiting.state, waiting.version) == (EvalState.QUEUED, version(3))
    await run.until(lambda: 3 in run.wanted.versions)
    await run.director.close()
    run.new_director()
    await known(run)
    assert 3 in run.wanted.versions
    run.step(3)
    run.land(version(3))
    await run.until(lambda: run.measured == ["reverse@1.0", "reverse@1.3"])
    assert run.director.book.find("chat/1.3/reverse").state is EvalState.DONE
    assert (await run.director.trigger("reverse", 2)).version == version(3)


async def test_what_cannot_be_triggered_is_refused_with_the_reason(run):
    with pytest.raises(UnavailableError, match="not known yet"):
        await run.director.trigger("reverse", 1)
    run.note(max_steps=10)
    await known(run)
    with pytest.raises(InvalidRequestError, match="no eval 'nosuch'; the configuration has: reverse"):
        await run.director.trigger("nosuch", 1)
    for number in (-1, 11):
        with pytest.raises(OutOfRangeError, match="from 0 to the run's last, 10"):
            await run.director.trigger("reverse", number)
    run.step(10, last_sealed=True, ended=True)
    await run.until(lambda: run.director.idle)
    run.results.record(run.results.of_run(run.uid)[0])
    assert (await run.director.trigger("reverse", 10)).state is EvalState.MISSED
    run.director.book.finished.clear()
    with pytest.raises(PreconditionError, match="has ended"):
        await run.director.trigger("reverse", 10)


async def test_whoever_watches_is_told_of_every_turn(run):
    await known(run)
    seen = []

    async def watch() -> None:
        async for view in run.director.book.watch("reverse"):
            seen.append((view.version.number, view.state))
            if view.state is EvalState.DONE:
                return

    watching = asyncio.create_task(watch())
    run.engines[0].gate.clear()
    await asyncio.sleep(0)
    run.land(version(0))
    await run.engines[0].busy(4)
    run.engines[0].gate.set()
    await watching
    assert list(dict.fromkeys(seen)) == [(0, EvalState.QUEUED), (0, EvalState.RUNNING), (0, EvalState.DONE)]


def test_a_runs_history_is_what_moved_it():
    events = [
        RunEventInfo(time=0.0, kind=kind, attempt=attempt, step=step, detail="")
        for kind, attempt, step in [
            ("created", 0, 0),
            ("attempt_begun", 1, 0),
            ("rewound", 2, 3),
            ("attempt_displaced", 1, 9),
            ("attempt_begun", 3, 3),
        ]
    ]
    assert history_of("uid", events).bases == ((1, 0), (2, 3), (3, 3))
