"""`verifiers` environments of one agent without tools: their tasks are the prompts, their rewards the scores.

    task ──agent, its model call──> interception of verifiers ──> chat bridge ──> engine
      └──────rewards over the whole conversation──────────────────────────────> answer

Checked with verifiers 0.4.0, which is no dependency: whoever has environments has it.
"""

import math
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any

from dataserver.errors import InvalidConfigError
from orchestrator.engines.interface import Engine
from orchestrator.errors import ScorerError
from orchestrator.evals.chat_bridge import ChatBridge
from orchestrator.evals.config import EvalConfig
from orchestrator.evals.questions import Questions, VersionOf, sampling_params, versions_of
from orchestrator.results import Answer
from orchestrator.results.records import summed

# Its own, so that no key of the operator's environment is sent anywhere.
KEY_VARIABLE = "ORCHESTRATOR_CHAT_BRIDGE_KEY"


def load_environment(config: EvalConfig) -> Questions:
    """The environment of `[evals.environment]`; raises `InvalidConfigError`."""
    if find_spec("verifiers") is None:
        raise InvalidConfigError(
            f"eval {config.name!r}: environments need the package verifiers, which is not installed: "
            "pip install 'dataserver[verifiers]', or give prompts and a scorer"
        )
    return EnvironmentQuestions(config)


class EnvironmentQuestions:
    """`Questions` of an environment: each answer is an agent's run on a task."""

    def __init__(self, config: EvalConfig) -> None:
        given = config.environment
        if given is None:
            raise InvalidConfigError(f"eval {config.name!r} has no environment")
        # Whatever type verifiers gives them: it is no dependency.
        self._verifiers: Any = import_module("verifiers.v1")
        try:
            settings = self._verifiers.taskset_config_type(given.id).model_validate({**given.args, "id": given.id})
            tasks = self._verifiers.load_taskset(settings)
            self._tasks: list[Any] = list(islice(tasks, given.limit))
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise InvalidConfigError(f"eval {config.name!r}: environment {given.id!r}: {error}") from error
        if not self._tasks:
            raise InvalidConfigError(f"eval {config.name!r}: environment {given.id!r} has no tasks")
        self._config = config
        self._name = given.id
        self.binary = given.binary

    @property
    def count(self) -> int:
        """Tasks."""
        return len(self._tasks)

    async def answer(self, prompt: int, sample: int, engine: Engine, version_of: VersionOf) -> Answer:
        """See `Questions`."""
        async with ChatBridge(engine=engine, sampling=sampling_params(self._config, sample)) as bridge:
            trace = await self._play(self._tasks[prompt], bridge)
        if bridge.fault is not None:
            raise bridge.fault
        if not trace.ok or not bridge.said or not math.isfinite(trace.reward):
            told = "; ".join(f"{error.type}: {error.message}" for error in trace.errors) or f"reward {trace.reward}"
            raise ScorerError(f"environment {self._name}, task {prompt}: {told}")
        return Answer(
            prompt=prompt,
            sample=sample,
            reward=float(trace.reward),
            text=trace.last_reply,
            tokens=sum(len(said.token_ids) for said in bridge.said),
            finish_reason="length" if any(said.finish_reason == "length" for said in bridge.said) else "stop",
            version_tokens=summed(part for said in bridge.said for part in versions_of(said, version_of)),
            engine=engine.name,
        )

    async def _play(self, task: Any, bridge: ChatBridge) -> Any:  # noqa: ANN401 - values of verifiers
        library = self._verifiers
        settings = library.AgentConfig(
            harness={"id": "null"},
            runtime=library.SubprocessConfig(),
            model="policy",
            client=library.EvalClientConfig(base_url=bridge.url, api_key_var=KEY_VARIABLE),
            max_turns=1,
        )
        agent = library.Agent(settings)
        agent.harness = _in_process_harness()(agent.config.harness)
        async with agent:
            return await agent.run(task)


def _in_process_harness() -> Any:  # noqa: ANN401 - a class of verifiers
    """A harness that asks once, from this process: those of verifiers install a program in a sandbox first."""
    httpx: Any = import_module("httpx")
    runtimes: Any = import_module("verifiers.v1.runtimes")
    null: Any = import_module("verifiers.v1.harnesses.null.harness")

    class InProcessHarness(null.NullHarness):  # type: ignore[misc]
        async def setup(self, runtime: Any) -> None:  # noqa: ANN401
            """Nothing is to be installed."""

        async def launch(  # noqa: PLR0917 - the signature of verifiers
            self,
            ctx: Any,  # noqa: ANN401
            trace: Any,  # noqa: ANN401, ARG002
            runtime: Any,  # noqa: ANN401, ARG002
            endpoint: str,
            secret: str,
            mcp_urls: dict[str, str],  # noqa: ARG002
            data: Any,  # noqa: ANN401
            **_more: object,
        ) -> Any:  # noqa: ANN401
            """Put the task to the model; the engine's client has the deadline."""
            body = {"model": ctx.model, "messages": _messages_of(*self.resolve_prompt(data))}
            async with httpx.AsyncClient(timeout=None) as http:
                url = f"{endpoint.rstrip('/')}/chat/completions"
                answer = await http.post(url, json=body, headers={"authorization": f"Bearer {secret}"})
            failed = answer.status_code != HTTPStatus.OK
            return runtimes.ProgramResult(exit_code=int(failed), stdout="", stderr=answer.text if failed else "")

    return InProcessHarness


def _messages_of(system: str | None, prompt: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """A task's prompt as chat messages: a text, or messages of verifiers."""
    messages = [{"role": "system", "content": system}] if system else []
    if isinstance(prompt, str):
        return [*messages, {"role": "user", "content": prompt}]
    return [*messages, *(message.model_dump(exclude_none=True) for message in prompt or ())]
