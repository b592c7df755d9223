"""`[[evals]]`: what is asked of the policy, how its answers are judged, and when.

    [[evals]]
    name = "reverse"
    interval = 50
    samples = 4
    prompts = { file = "evals/reverse.jsonl" }
    sampling = { max_tokens = 64 }
    scorer = { kind = "exact" }

Nothing here reads a file: `prompts` and `scorers` do, before the first eval is due.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import regex
from pydantic import AfterValidator, ConfigDict, Field, JsonValue, field_validator, model_validator

from dataserver.run_spec import MAX_SEED, Spec

# Names stand in ids of evals, in file names and in the names of metrics.
EVAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ENTRY_POINT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

# More answers to one prompt say nothing new.
MOST_SAMPLES = 4096


class Section(Spec):
    """Base of the sections: as a spec, and every number is finite."""

    model_config = ConfigDict(allow_inf_nan=False)


def _eval_name(name: str) -> str:
    if not EVAL_NAME.fullmatch(name):
        raise ValueError(
            f"eval name {name!r}: use letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 64"
        )
    return name


EvalName = Annotated[str, AfterValidator(_eval_name)]


class PromptsConfig(Section):
    """`[evals.prompts]`: where prompts come from. Give `file` or `store`."""

    file: Path | None = None
    """JSON Lines: `messages` (chat, with `role` and `content`) or `prompt` (text) a line, and `reference`, the right
    answer."""
    store: str | None = Field(default=None, min_length=1)
    """Name of a store on the data server: a row's tokens before its first target are the prompt, its targets the
    reference."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first so many prompts."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.file is None) == (self.store is None):
            raise ValueError("give exactly one of prompts.file and prompts.store")
        return self


class SamplingConfig(Section):
    """`[evals.sampling]`: how answers are sampled."""

    max_tokens: int = Field(ge=1)
    """Longest answer. One that reaches it is truncated, and counted as such."""
    temperature: float = Field(default=1.0, ge=0, le=2)
    """0 takes the likeliest token always; `samples` must then be 1."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Share of the probability that the likeliest tokens make up; others are never drawn."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer; they are no part of it."""
    seed: int | None = Field(default=None, ge=0, le=MAX_SEED - MOST_SAMPLES)
    """Seed of the first answer to each prompt, the second takes the next, and so on; none draws anew each time."""

    @field_validator("stop")
    @classmethod
    def _stops_say_something(cls, stop: tuple[str, ...]) -> tuple[str, ...]:
        if "" in stop:
            raise ValueError("stop holds an empty text, which would end every answer at once: leave it out")
        return stop


class ExactScorer(Section):
    """An answer scores 1 if it is the reference, blanks at both ends aside; of a store, if it has the same tokens."""

    kind: Literal["exact"] = "exact"
    """`exact`"""
    ignore_case: bool = False
    """Whether capitals count as small letters."""


class NumericScorer(Section):
    """An answer scores 1 if its last number is the reference."""

    kind: Literal["numeric"]
    """`numeric`"""
    tolerance: float = Field(default=1e-6, ge=0)
    """How far the two may be apart, as a part of the reference."""


class RegexScorer(Section):
    """An answer scores 1 if the pattern is found in it and its first group, where it has one, is the reference."""

    kind: Literal["regex"]
    """`regex`"""
    pattern: str = Field(min_length=1)
    """Pattern as of Python's `re`, searched for anywhere; where it is found twice, the last one counts. One that takes
    more than five seconds for an answer fails the eval."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            groups = regex.compile(pattern).groups
        except regex.error as error:
            raise ValueError(f"{pattern!r} is no pattern as of Python's re: {error}") from error
        if groups > 1:
            raise ValueError(f"{pattern!r} has {groups} groups: leave one, and write the others as (?:…)")
        return pattern


class PythonScorer(Section):
    """An answer scores what a function of yours says."""

    kind: Literal["python"]
    """`python`"""
    entry_point: str
    """`MODULE:FUNCTION`. Called with the text of the answer and the whole line of the prompt; returns a number. It may
    be a coroutine function; another one runs in a thread."""
    binary: bool = False
    """Whether it returns 0 and 1 only, so that pass@k means something."""

    @field_validator("entry_point")
    @classmethod
    def _names_a_function(cls, entry_point: str) -> str:
        if not ENTRY_POINT.fullmatch(entry_point):
            raise ValueError(
                f"entry_point {entry_point!r} is not of the form MODULE:FUNCTION, as in 'rewards.math:score'"
            )
        return entry_point


Scorer = Annotated[ExactScorer | NumericScorer | RegexScorer | PythonScorer, Field(discriminator="kind")]


class EnvironmentConfig(Section):
    """`[evals.environment]`: a `verifiers` environment, in place of prompts and a scorer of our own.

    One agent answers each of its tasks, without tools.
    """

    id: str = Field(min_length=1)
    """Its id; the package that holds it must be installed, and `verifiers` with it."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Fields of its own configuration."""
    binary: bool = False
    """Whether its rewards are 0 and 1 only, so that pass@k means something."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first so many of its tasks."""


class EvalConfig(Section):
    """`[[evals]]`: one evaluation. Give `prompts`, or `environment`."""

    name: EvalName
    """Its name in results and metrics."""
    interval: int = Field(ge=1)
    """It is due at every version that is a multiple of this."""
    eval_at_start: bool = True
    """Whether it is due at version 0."""
    eval_at_end: bool = True
    """Whether it is due at the run's last version, whichever it is."""
    pin: bool = False
    """Whether all answers come from one version: its engines then take no other until the last answer is there.
    Without it newer weights arrive while answers are being made, and the result says which version made how much."""
    prompts: PromptsConfig | None = None
    """Where prompts come from."""
    sampling: SamplingConfig
    """How answers are sampled."""
    scorer: Scorer = ExactScorer()
    """How answers are judged."""
    environment: EnvironmentConfig | None = None
    """A `verifiers` environment that asks and judges."""
    samples: int = Field(default=1, ge=1, le=MOST_SAMPLES)
    """Answers to each prompt."""
    max_in_flight: int = Field(default=64, ge=1, le=65_536)
    """Answers that are being made at a time, over all engines."""
    drain_timeout_s: float = Field(default=600, gt=0)
    """How long an eval may go on without one more answer before it is given up."""

    @model_validator(mode="after")
    def _one_asker(self) -> Self:
        if (self.prompts is None) == (self.environment is None):
            raise ValueError(f"eval {self.name!r}: give exactly one of prompts and environment")
        if self.environment is not None and "scorer" in self.model_fields_set:
            raise ValueError(f"eval {self.name!r}: its environment judges the answers; leave the scorer out")
        return self

    @model_validator(mode="after")
    def _answers_differ(self) -> Self:
        if self.samples > 1 and self.sampling.temperature == 0:
            raise ValueError(
                f"eval {self.name!r}: with sampling.temperature = 0 its {self.samples} answers to a prompt would be "
                "the same; set samples = 1, or a temperature above 0"
            )
        return self


def check_evals(evals: Sequence[EvalConfig]) -> None:
    """Raise `ValueError` where two evals have one name."""
    counts = Counter(each.name for each in evals)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise ValueError(f"evals of the same name: {', '.join(twice)}; results are kept by name, so rename all but one")
