"""A live and a pinned eval, run side by side on real engines while newer weights arrive: who made which token."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from enginelab import gates
from enginelab.gates import Gate
from enginelab.vllm_server import Lab
from runlab import RUN, RunningOrchestrator, SmallTrainer, Weights, eventually, orchestrator_config, run_spec

from dataserver.testing import RunningServer, running_server, write_store
from orchestrator.results import EvalResult, open_results

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = 3
TOKENS = 4
ANSWERS = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    store = write_store(tmp_path / "chat", lengths=[8] * 40)
    with running_server({"chat": store}, max_steps_ahead=0) as server:
        with SmallTrainer(server.endpoint, tmp_path).client as client:
            client.create_run(RUN, run_spec(STEPS))
        yield server


@pytest.fixture
def live() -> Iterator[Gate]:
    yield from opened("live")


@pytest.fixture
def pinned() -> Iterator[Gate]:
    yield from opened("pinned")


def opened(name: str) -> Iterator[Gate]:
    gates.gates[name] = gate = Gate()
    yield gate
    # Whoever waits after a test that failed.
    gate.let(100)


def eval_of(folder: Path, name: str, *, pin: bool) -> dict[str, Any]:
    """Asks for one answer after the other, of version 0 and of the last."""
    prompts = folder / f"{name}.jsonl"
    prompts.write_text(json.dumps({"prompt": "abc", "gate": name}) + "\n")
    return {
        "name": name,
        "interval": 100,
        "pin": pin,
        "prompts": {"file": str(prompts)},
        "sampling": {"max_tokens": TOKENS},
        "scorer": {"kind": "python", "entry_point": "enginelab.gates:score"},
        "samples": ANSWERS,
        "max_in_flight": 1,
    }


def results_of(folder: Path, name: str, number: int) -> list[EvalResult]:
    table = open_results(f"sqlite:///{folder}/evals.db")
    try:
        return [result for result in table.find(run=RUN, name=name) if result.version.number == number]
    finally:
        table.close()


def made_by(result: EvalResult) -> list[tuple[int, int]]:
    """How many tokens each version made."""
    return [(-1 if part.version is None else part.version.number, part.tokens) for part in result.version_tokens]


@pytest.mark.parametrize("count", [1, 2])
def test_a_pinned_eval_is_of_one_version_and_a_live_one_tells_which_version_made_how_much(
    lab: Lab, server: RunningServer, live: Gate, pinned: Gate, tmp_path: Path, count: int
) -> None:
    def weights(number: int) -> Weights:
        return {name: value.numpy() for name, value in lab.model.next_version(100 + number).items()}

    def hook(version: int) -> None:
        if version == 0:
            eventually(lambda: (live.arrived, pinned.arrived) == (1, 1), "both evals have an answer of version 0")
        if version == 1:
            # One engine stays with the pinned eval; where there is another one, it takes the version.
            pinned.let(ANSWERS)
            eventually(lambda: bool(results_of(tmp_path, "pinned", 0)), "the pinned eval is over")
            live.let(1)
            eventually(lambda: live.arrived == 2, "the live eval has a second answer")
            eventually(lambda: bool(trainer.client.sync_state(RUN).holds), "the live eval holds")
        if version == 2:
            live.let(1)
            eventually(lambda: live.arrived == ANSWERS, "the live eval has its last answer")
            live.let(1 + ANSWERS)
            pinned.let(ANSWERS)

    trainer = SmallTrainer(server.endpoint, tmp_path, hook, weights)
    urls = {f"e{number}": engine.url for number, engine in enumerate(lab.servers[:count])}
    config = orchestrator_config(
        tmp_path, urls, evals=[eval_of(tmp_path, "live", pin=False), eval_of(tmp_path, "pinned", pin=True)]
    )
    with RunningOrchestrator(config, server.endpoint) as orchestrator, trainer.client:
        eventually(lambda: bool(trainer.client.sync_state(RUN).holds), "the first evals are queued")
        trainer.train()
        assert orchestrator.ended()
    second = "1 landed" if count == 2 else "1 skipped REFUSAL_REASON_PINNED"
    assert trainer.outcomes[:4] == ["0 landed", second, "2 landed", "3 landed"]
    [of_pinned], [of_live] = results_of(tmp_path, "pinned", 0), results_of(tmp_path, "live", 0)
    assert made_by(of_pinned) == [(0, ANSWERS * TOKENS)]
    newer = [(0, TOKENS), (1, TOKENS), (2, TOKENS)] if count == 2 else [(0, 2 * TOKENS), (2, TOKENS)]
    assert made_by(of_live) == newer
    for name in ("live", "pinned"):
        [last] = results_of(tmp_path, name, STEPS)
        assert made_by(last) == [(STEPS, ANSWERS * TOKENS)]
