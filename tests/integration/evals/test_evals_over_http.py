"""Evals over HTTP, against fake engines: versions are read from the engine, and one that dies costs no answer."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from evallab.run import eval_config, version, write_prompts

from orchestrator.engines.vllm_http import VllmEngine
from orchestrator.evals import sampling
from orchestrator.evals.loading import load_questions
from orchestrator.evals.sampling import Sampler
from orchestrator.labels import label_of
from orchestrator.pool import Pool
from orchestrator.testing import Fault, RunningFakeEngine, running_fake_engine

SYNC = "0" * 31


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "FIRST_PAUSE_S", 1e-3)


@asynccontextmanager
async def fakes(
    count: int, reply: Callable[[str, str], str] = lambda prompt, _label: prompt[::-1]
) -> AsyncIterator[tuple[Pool, list[RunningFakeEngine]]]:
    with ExitStack() as stack:
        running = [stack.enter_context(running_fake_engine(reply=reply)) for _ in range(count)]
        engines = [VllmEngine(f"engine-{number}", fake.url) for number, fake in enumerate(running)]
        pool = Pool(engines)
        for number, fake in enumerate(running):
            pool.see(pool.members[number], None, workers=1)
            land(pool, fake, number, 5)
        try:
            yield pool, running
        finally:
            for engine in engines:
                await engine.close()


def land(pool: Pool, fake: RunningFakeEngine, number: int, landed: int) -> None:
    fake.engine.label = label_of(version(landed), f"{SYNC}{landed}")
    pool.land(pool.members[number], version(landed), f"{SYNC}{landed}", attempt=1)


def sampler(folder: Path, pool: Pool, prompts: int = 8, **fields: object) -> Sampler:
    config = eval_config(write_prompts(folder / "prompts.jsonl", prompts), **fields)
    return Sampler(config=config, questions=load_questions(config), version=version(5), pool=pool)


async def test_answers_of_two_engines_are_scored_and_their_versions_counted(tmp_path):
    async with fakes(2) as (pool, _):
        made = sampler(tmp_path, pool, samples=2)
        await made.run()
    assert made.detail == ""
    assert len(made.answers) == 16
    assert all(answer.reward == 1.0 and answer.finish_reason == "stop" for answer in made.answers)
    assert {answer.engine for answer in made.answers} == {"engine-0", "engine-1"}
    assert {part for answer in made.answers for part in [str(p.version) for p in answer.version_tokens]} == {"1.5"}


async def test_an_engine_that_dies_in_the_middle_costs_no_answer(tmp_path):
    async with fakes(2) as (pool, running):
        running[0].engine.fault(Fault(call="generate", action="die"))
        made = sampler(tmp_path, pool)
        await made.run()
    assert made.detail == ""
    assert sorted(answer.prompt for answer in made.answers) == list(range(8))
    assert "engine-0" in made.last_fault


async def test_weights_that_arrive_while_an_answer_is_made_are_read_from_the_engine(tmp_path):
    begun = threading.Event()

    def reply(prompt: str, _label: str) -> str:
        # Called for each token: after the first the engine freezes, however fast it is.
        if not begun.is_set():
            fake.engine.pause()
            begun.set()
        return prompt[::-1]

    async with fakes(1, reply) as (pool, [fake]):
        made = sampler(tmp_path, pool, prompts=1)
        running = asyncio.create_task(made.run())
        await asyncio.to_thread(begun.wait)
        land(pool, fake, 0, 6)
        fake.engine.resume()
        await running
    [answer] = made.answers
    assert [(str(part.version), part.tokens) for part in answer.version_tokens] == [("1.5", 1), ("1.6", 5)]
