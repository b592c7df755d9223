"""One answer at a time: what an eval asks of an engine, and how it judges what that says."""

from collections.abc import Callable
from typing import Protocol

from dataserver.weight_sync import PolicyVersion
from orchestrator.engines.interface import Completion, Engine, SamplingParams
from orchestrator.evals.config import EvalConfig
from orchestrator.results import Answer, VersionTokens
from orchestrator.results.records import summed

# The version that a label stands for; None for one that is not of this run, or of weights that were dropped.
VersionOf = Callable[[str | None], PolicyVersion | None]


class Questions(Protocol):
    """What an eval asks, and how it judges."""

    @property
    def count(self) -> int:
        """Prompts."""

    @property
    def binary(self) -> bool:
        """Whether rewards are 0 and 1 only."""

    async def answer(self, prompt: int, sample: int, engine: Engine, version_of: VersionOf) -> Answer:
        """The `sample`-th answer to the `prompt`-th prompt, and who made it; raises `EngineError`, `ScorerError`."""


def sampling_params(config: EvalConfig, sample: int) -> SamplingParams:
    """How the `sample`-th answer to any prompt is sampled."""
    sampling = config.sampling
    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        stop=sampling.stop,
        seed=None if sampling.seed is None else sampling.seed + sample,
    )


def versions_of(said: Completion, version_of: VersionOf) -> tuple[VersionTokens, ...]:
    """Which versions made a completion, the oldest first."""
    return summed(VersionTokens(version=version_of(span.label), tokens=span.tokens) for span in said.versions)
