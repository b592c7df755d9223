"""Answers come, whatever fails on the way, and what cannot come is said."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from evallab.engines import ScriptedEngine, gone
from evallab.run import eval_config, give, version, write_prompts

from orchestrator.errors import EngineRefusedError, GenerationAbortedError, ScorerError
from orchestrator.evals import sampling
from orchestrator.evals.loading import load_questions
from orchestrator.evals.sampling import MOST_TRIES, Sampler
from orchestrator.labels import label_of
from orchestrator.pool import Pool


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "FIRST_PAUSE_S", 1e-4)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write_prompts(tmp_path / "prompts.jsonl", 6)


def a_pool(engines: list[ScriptedEngine], number: int = 5) -> Pool:
    pool = Pool(engines)  # type: ignore[arg-type]
    for index, engine in enumerate(engines):
        pool.see(pool.members[index], None, workers=1)
        give(pool, engine, index, version(number))
    return pool


def sampler(config, pool: Pool) -> Sampler:
    return Sampler(config=config, questions=load_questions(config), version=version(5), pool=pool)


async def test_every_prompt_gets_its_answers_and_no_more_are_in_flight_than_allowed(prompts):
    engine = ScriptedEngine("a")
    config = eval_config(prompts, samples=3, max_in_flight=4, sampling={"max_tokens": 16, "seed": 7, "stop": ["\n"]})
    made = sampler(config, a_pool([engine]))
    await made.run()
    assert Counter((a.prompt, a.sample) for a in made.answers) == {(p, s): 1 for p in range(6) for s in range(3)}
    assert all(answer.reward == 1 and answer.engine == "a" for answer in made.answers)
    assert engine.most_in_flight == 4
    assert Counter(params.seed for _, params in engine.calls) == {7: 6, 8: 6, 9: 6}
    assert {params.stop for _, params in engine.calls} == {("\n",)}


async def test_what_fails_on_one_engine_is_asked_of_another(prompts):
    engines = [ScriptedEngine("dead"), ScriptedEngine("well")]
    engines[0].fails = lambda _prompt, _calls: gone("dead")
    made = sampler(eval_config(prompts), a_pool(engines))
    await made.run()
    assert {answer.engine for answer in made.answers} == {"well"}
    assert len(made.answers) == 6
    assert made.detail == ""
    assert engines[0].calls


async def test_an_answer_that_brings_engines_down_is_given_up_and_the_others_come(prompts):
    engine = ScriptedEngine("a")
    engine.fails = lambda prompt, _calls: gone("a") if prompt == "word-3" else None
    made = sampler(eval_config(prompts), a_pool([engine]))
    await made.run()
    assert [answer.prompt for answer in made.answers if answer.prompt == 3] == []
    assert len(made.answers) == 5
    told = f"gave up 1 of 6 answers: failed {MOST_TRIES} times, at last with: engine a: generate: connection refused"
    assert made.detail == told
    assert sum(prompt == "word-3" for prompt, _ in engine.calls) == MOST_TRIES


async def test_what_an_engine_refuses_is_asked_once(prompts):
    engine = ScriptedEngine("a")
    engine.fails = lambda prompt, _: EngineRefusedError("a", "generate", "too long") if prompt == "word-1" else None
    made = sampler(eval_config(prompts), a_pool([engine]))
    await made.run()
    assert len(made.answers) == 5
    assert made.detail == "gave up 1 of 6 answers: engine a: generate: too long"
    assert sum(prompt == "word-1" for prompt, _ in engine.calls) == 1


async def test_what_was_aborted_is_no_failure_however_often(prompts):
    engine = ScriptedEngine("a")
    aborted = GenerationAbortedError("a", "generate", "aborted")
    engine.fails = lambda _prompt, calls: aborted if calls < 20 * MOST_TRIES else None
    made = sampler(eval_config(prompts), a_pool([engine]))
    await made.run()
    assert len(made.answers) == 6


async def test_an_eval_without_progress_ends_and_says_what_it_gave_up(prompts):
    engine = ScriptedEngine("a")
    engine.fails = lambda prompt, _: gone("a") if prompt != "word-0" else None
    pool = a_pool([engine])
    made = sampler(eval_config(prompts, drain_timeout_s=0.05, max_in_flight=1), pool)
    engine.gate.clear()
    await made.run()
    assert made.answers == []
    assert made.detail == "gave up 6 of 6 answers: no answer came for drain_timeout_s = 0.05"
    assert (engine.in_flight, pool.members[0].loans) == (0, 0)


async def test_progress_renews_the_patience(tmp_path):
    engine = ScriptedEngine("a")
    engine.answer_s = 1.0  # four answers one after another take longer than the patience, each takes less
    config = eval_config(write_prompts(tmp_path / "few.jsonl", 4), drain_timeout_s=3.5, max_in_flight=1)
    made = sampler(config, a_pool([engine]))
    await made.run()
    assert (len(made.answers), made.detail) == (4, "")


async def test_a_scorer_that_fails_ends_the_eval_at_once(prompts):
    engine = ScriptedEngine("a")
    made = sampler(eval_config(prompts), a_pool([engine]))

    async def fails(*_):
        raise ScorerError("scorer x on line 3: KeyError")

    made.questions = type("Q", (), {"count": 6, "binary": True, "answer": fails})()
    with pytest.raises(ScorerError, match="line 3"):
        await made.run()


async def test_a_live_eval_goes_on_while_weights_change_and_each_answer_names_its_versions(prompts):
    engine = ScriptedEngine("a")
    pool = a_pool([engine])
    made = sampler(eval_config(prompts), pool)
    engine.gate.clear()
    running = asyncio.create_task(made.run())
    await engine.busy(6)
    give(pool, engine, 0, version(6))
    engine.gate.set()
    await running
    parts = [[(str(part.version), part.tokens) for part in answer.version_tokens] for answer in made.answers]
    assert parts == [[("1.5", 3), ("1.6", 3)]] * 6


async def test_a_pinned_eval_keeps_an_engine_to_the_last_answer_and_leaves_the_other(prompts):
    engines = [ScriptedEngine("a"), ScriptedEngine("b")]
    pool = a_pool(engines)
    made = sampler(eval_config(prompts, pin=True, max_in_flight=1), pool)
    engines[0].gate.clear()
    engines[1].gate.clear()
    running = asyncio.create_task(made.run())
    await asyncio.wait([asyncio.create_task(engine.busy(1)) for engine in engines], return_when="FIRST_COMPLETED")
    pinned = [member for member in pool.members if member.pins]
    assert pinned
    for index, member in enumerate(pool.members):
        if not member.pins:
            give(pool, engines[index], index, version(6))
    for engine in engines:
        engine.gate.set()
    await running
    assert {str(part.version) for answer in made.answers for part in answer.version_tokens} == {"1.5"}
    assert not any(member.pins or member.loans for member in pool.members)


async def test_an_answer_of_another_version_never_counts_for_a_pinned_eval(prompts):
    engines = [ScriptedEngine("liar"), ScriptedEngine("well")]
    pool = a_pool(engines, 9)
    nine = engines[0].label
    for index, engine in enumerate(engines):
        give(pool, engine, index, version(5))
    engines[0].label = nine
    made = sampler(eval_config(prompts, pin=True), pool)
    await made.run()
    assert {answer.engine for answer in made.answers} == {"well"}
    assert len(made.answers) == 6


@pytest.mark.parametrize("pin", [False, True], ids=["live", "pinned"])
@pytest.mark.parametrize("number", [5, 6])
async def test_an_answer_of_another_runs_weights_never_counts_whatever_their_number(prompts, number, pin):
    engines = [ScriptedEngine("shared"), ScriptedEngine("well")]
    pool = a_pool(engines)
    engines[0].label = label_of(version(number), "f" * 32)
    made = sampler(eval_config(prompts, pin=pin), pool)
    await made.run()
    assert {answer.engine for answer in made.answers} == {"well"}
    assert len(made.answers) == 6


@pytest.mark.parametrize("fresh", [True, False], ids=["started anew", "older"])
async def test_an_answer_of_older_weights_never_counts_for_a_live_eval(prompts, fresh):
    engines = [ScriptedEngine("back"), ScriptedEngine("well")]
    pool = a_pool(engines, 4)
    four = engines[0].label
    for index, engine in enumerate(engines):
        give(pool, engine, index, version(5))
    engines[0].label = None if fresh else four
    made = sampler(eval_config(prompts), pool)
    await made.run()
    assert {answer.engine for answer in made.answers} == {"well"}
    assert len(made.answers) == 6
