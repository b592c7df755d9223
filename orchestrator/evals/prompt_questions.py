"""Prompts of ours, judged by a scorer of ours."""

from dataclasses import dataclass, field

from orchestrator.engines.interface import Engine
from orchestrator.evals.config import EvalConfig
from orchestrator.evals.prompts import Prompt
from orchestrator.evals.questions import VersionOf, sampling_params, versions_of
from orchestrator.evals.scorers import Scorer
from orchestrator.results import Answer


@dataclass(slots=True, kw_only=True)
class PromptQuestions:
    """`Questions` of `[evals.prompts]`. A prompt becomes tokens once: all engines serve one model."""

    config: EvalConfig
    prompts: tuple[Prompt, ...]
    scorer: Scorer
    _tokens: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Prompts."""
        return len(self.prompts)

    @property
    def binary(self) -> bool:
        """Whether rewards are 0 and 1 only."""
        return self.scorer.binary

    async def answer(self, prompt: int, sample: int, engine: Engine, version_of: VersionOf) -> Answer:
        """See `Questions`."""
        asked = self.prompts[prompt]
        if prompt not in self._tokens:
            self._tokens[prompt] = await _tokenize(asked, engine)
        [said] = await engine.generate(self._tokens[prompt], sampling_params(self.config, sample))
        reward = await self.scorer.score(asked, said)
        return Answer(
            prompt=prompt,
            sample=sample,
            reward=reward,
            text=said.text,
            tokens=len(said.token_ids),
            finish_reason=said.finish_reason,
            version_tokens=versions_of(said, version_of),
            engine=engine.name,
        )


async def _tokenize(prompt: Prompt, engine: Engine) -> tuple[int, ...]:
    question = prompt.question
    if isinstance(question, str):
        return await engine.tokenize(question)
    tokens = tuple(part for part in question if isinstance(part, int))
    if tokens:
        return tokens
    return await engine.tokenize([part for part in question if not isinstance(part, int)])
