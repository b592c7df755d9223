"""Environments of verifiers: asked through a bridge that knows the versions, judged by their own rewards."""

import sys
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from evallab.engines import ScriptedEngine, gone
from evallab.run import version

from dataserver.errors import InvalidConfigError
from orchestrator.engines.interface import SamplingParams
from orchestrator.errors import EngineUnavailableError
from orchestrator.evals.chat_bridge import ChatBridge
from orchestrator.evals.config import EvalConfig
from orchestrator.evals.environments import load_environment
from orchestrator.labels import label_of

TASKS = """
import verifiers.v1 as vf


class ReverseTask(vf.Task):
    @vf.reward
    async def reversed_right(self, trace) -> float:
        return float(trace.last_reply == self.data.prompt[::-1])


class ReverseTaskset(vf.Taskset[ReverseTask, vf.TasksetConfig]):
    def load(self):
        for word in ("hello", "world", "abc"):
            yield ReverseTask(vf.TaskData(prompt=word), self.config.task)


__all__ = ["ReverseTaskset"]
"""


def config(**environment: object) -> EvalConfig:
    fields = {"name": "e", "interval": 1, "environment": environment, "sampling": {"max_tokens": 16}}
    return EvalConfig.model_validate(fields)


@pytest.fixture
def engine() -> ScriptedEngine:
    engine = ScriptedEngine("a")
    engine.label = label_of(version(5), "0" * 32)
    return engine


async def test_a_chat_goes_through_the_bridge_and_leaves_its_completion(engine):
    bridge = ChatBridge(engine=engine, sampling=SamplingParams(max_tokens=8))
    async with bridge, httpx.AsyncClient() as http:
        parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
        body = {"model": "policy", "messages": [{"role": "user", "content": parts}]}
        answer = await http.post(f"{bridge.url}/chat/completions", json=body)
        refused = await http.post(f"{bridge.url}/chat/completions", json=body | {"stream": True})
    assert answer.json()["choices"][0]["message"] == {"role": "assistant", "content": "cba"}
    assert answer.json()["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    assert [said.text for said in bridge.said] == ["cba"]
    assert (refused.status_code, "no tools, no streams" in refused.text) == (400, True)


async def test_what_an_engine_fails_with_is_kept(engine):
    engine.fails = lambda _prompt, _calls: gone("a")
    bridge = ChatBridge(engine=engine, sampling=SamplingParams(max_tokens=8))
    async with bridge, httpx.AsyncClient() as http:
        body = {"messages": [{"role": "user", "content": "abc"}]}
        answer = await http.post(f"{bridge.url}/chat/completions", json=body)
    assert answer.status_code == 503
    assert isinstance(bridge.fault, EngineUnavailableError)


@pytest.mark.skipif(find_spec("verifiers") is not None, reason="verifiers is installed here")
def test_without_the_package_it_is_said_what_to_install():
    with pytest.raises(InvalidConfigError, match=r"pip install 'dataserver\[verifiers\]'"):
        load_environment(config(id="reverse-tasks"))


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verifiers", reason="verifiers is no dependency: pip install 'dataserver[verifiers]'")
    (tmp_path / "reverse_tasks.py").write_text(TASKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "reverse_tasks", raising=False)


@pytest.mark.filterwarnings("default")
async def test_tasks_are_asked_and_judged_by_their_own_rewards(tasks, engine):
    questions = load_environment(config(id="reverse-tasks", limit=2))
    assert questions.count == 2
    answer = await questions.answer(1, 0, engine, {engine.label: version(5)}.get)
    assert (answer.text, answer.reward, answer.tokens, answer.engine) == ("dlrow", 1.0, 5, "a")
    assert [(str(part.version), part.tokens) for part in answer.version_tokens] == [("1.5", 5)]


@pytest.mark.filterwarnings("default")
async def test_an_engine_that_fails_under_an_environment_is_an_engine_that_fails(tasks, engine):
    engine.fails = lambda _prompt, _calls: gone("a")
    with pytest.raises(EngineUnavailableError, match="connection refused"):
        await load_environment(config(id="reverse-tasks")).answer(0, 0, engine, lambda _label: None)


@pytest.mark.filterwarnings("default")
def test_an_environment_that_is_not_there_is_refused_by_name(tasks):
    with pytest.raises(InvalidConfigError, match="environment 'no-such-tasks'"):
        load_environment(config(id="no-such-tasks"))
