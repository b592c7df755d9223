"""One eval of one version, and its answers, as values. Times are seconds since 1970 by the orchestrator's clock."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from dataserver.weight_sync import PolicyVersion


class EvalState(StrEnum):
    """Where an eval stands; all but the first two are for good.

    `failed`: answers are missing. `missed`: it never began, as no weights of its version or a later one landed.
    """

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    MISSED = "missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionTokens:
    """So many tokens were made by `version`; None: by weights that are none of the run's."""

    version: PolicyVersion | None
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """An eval of one version.

    `version`: what it measures: the one that had landed when it began. `due`: the version that it was asked of; a
    later one is measured where that was missed. `samples`: answers asked for, of which `scored` are. `figures`: see
    `evals.figures`. `detail`: why it failed or was missed, or what was given up. `end_time`: None before the end.
    """

    run: str
    run_uid: str
    name: str
    version: PolicyVersion
    due: int
    state: EvalState
    samples: int
    scored: int
    figures: Mapping[str, float]
    version_tokens: tuple[VersionTokens, ...]
    create_time: float
    end_time: float | None
    detail: str = ""

    @property
    def eval_id(self) -> str:
        """What names it for people and programs."""
        return f"{self.run}/{self.version}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The `sample`-th answer to the `prompt`-th prompt, both from 0, and what it scored.

    `tokens`: its length. `finish_reason`: `stop` or `length`. `engine`: who made it.
    """

    prompt: int
    sample: int
    reward: float
    text: str
    tokens: int
    finish_reason: str
    version_tokens: tuple[VersionTokens, ...]
    engine: str


def summed(parts: Iterable[VersionTokens]) -> tuple[VersionTokens, ...]:
    """The tokens of each version, the oldest first."""
    totals: Counter[PolicyVersion | None] = Counter()
    for part in parts:
        totals[part.version] += part.tokens
    ordered = sorted(totals, key=lambda version: (-1, -1) if version is None else (version.attempt, version.number))
    return tuple(VersionTokens(version=version, tokens=totals[version]) for version in ordered)


def tokens_to_json(parts: Iterable[VersionTokens]) -> str:
    """As the table keeps them: pairs of a label, empty for None, and a count."""
    return json.dumps([["" if part.version is None else str(part.version), part.tokens] for part in parts])


def tokens_from_json(text: str) -> tuple[VersionTokens, ...]:
    """The way back."""
    return tuple(VersionTokens(version=PolicyVersion.parse(label), tokens=tokens) for label, tokens in json.loads(text))
