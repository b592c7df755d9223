"""An engine in memory: it reverses what it is asked, and waits, fails or goes where a test says."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from orchestrator.engines.interface import Completion, SamplingParams, VersionSpan
from orchestrator.errors import EngineError, EngineUnavailableError

# Decides about a call of (prompt, how many calls came before): an error is raised, None answers.
Fails = Callable[[str, int], EngineError | None]


class ScriptedEngine:
    """Serves `label`. A generation first waits for `gate`; while it waits, weights may change."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.url = f"memory://{name}"
        self.label: str | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.answer_s = 0.0
        self.fails: Fails = lambda _prompt, _calls: None
        self.calls: list[tuple[str, SamplingParams]] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._moved = asyncio.Condition()

    async def tokenize(self, prompt: str | Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        return tuple(map(ord, text))

    async def generate(self, token_ids: Sequence[int], sampling: SamplingParams) -> tuple[Completion, ...]:
        prompt = "".join(map(chr, token_ids))
        self.calls.append((prompt, sampling))
        await self._count(1)
        began = self.label
        try:
            await asyncio.sleep(self.answer_s)
            await self.gate.wait()
        finally:
            await self._count(-1)
        fault = self.fails(prompt, len(self.calls) - 1)
        if fault is not None:
            raise fault
        return (self._completion(prompt[::-1][: sampling.max_tokens], began, len(prompt) > sampling.max_tokens),)

    async def busy(self, count: int) -> None:
        """Wait until so many generations are in flight."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.in_flight == count)

    async def _count(self, change: int) -> None:
        async with self._moved:
            self.in_flight += change
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._moved.notify_all()

    def _completion(self, text: str, began: str | None, cut: bool) -> Completion:
        half = len(text) // 2
        spans = [(began, half), (self.label, len(text) - half)] if began != self.label else [(began, len(text))]
        return Completion(
            text=text,
            token_ids=tuple(map(ord, text)),
            finish_reason="length" if cut else "stop",
            versions=tuple(VersionSpan(label=label, tokens=tokens) for label, tokens in spans),
        )


def gone(engine: str) -> EngineUnavailableError:
    return EngineUnavailableError(engine, "generate", "connection refused")
