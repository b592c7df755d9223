"""How an answer is judged: a number, mostly 1 for a right one and 0 for a wrong one."""

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final, assert_never

import regex

from dataserver.errors import InvalidConfigError
from orchestrator.engines.interface import Completion
from orchestrator.errors import ScorerError
from orchestrator.evals.config import ExactScorer, NumericScorer, PythonScorer, RegexScorer
from orchestrator.evals.prompts import Prompt
from orchestrator.evals.scorer_threads import ScorerThreads

ScorerConfig = ExactScorer | NumericScorer | RegexScorer | PythonScorer

# As people write numbers: 12, -3.5, 1,234.5, 6e-3; no digit of a longer word or version.
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")

# How long a pattern may look at one answer: one that repeats repeats may need more years than an answer has letters.
PATTERN_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """`score` judges an answer to a prompt; `binary` if it says 0 and 1 only. It raises `ScorerError`."""

    score: Callable[[Prompt, Completion], Awaitable[float]]
    binary: bool


def make_scorer(config: ScorerConfig, prompts: Sequence[Prompt]) -> Scorer:
    """The scorer of `[evals.scorer]`; raises `InvalidConfigError` if it cannot judge answers to these prompts."""
    match config:
        case PythonScorer():
            return Scorer(score=_python(config.entry_point), binary=config.binary)
        case ExactScorer():
            _check_references(config.kind, prompts, lambda _: True)
            return _plain(lambda prompt, answer: _exact(config, prompt, answer))
        case NumericScorer():
            _check_references(config.kind, prompts, lambda text: last_number(text) is not None)
            return _plain(lambda prompt, answer: _numeric(config, prompt, answer))
        case RegexScorer():
            pattern = regex.compile(config.pattern)
            if pattern.groups:
                _check_references(config.kind, prompts, lambda _: True)
            return Scorer(score=_regex(pattern), binary=True)
        case _:
            assert_never(config)


def last_number(text: str) -> float | None:
    """The last number in a text; None without one."""
    found = NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def _check_references(kind: str, prompts: Sequence[Prompt], usable: Callable[[str], bool]) -> None:
    for prompt in prompts:
        reference = prompt.reference
        if isinstance(reference, tuple) and kind != "exact":
            raise InvalidConfigError(
                f"{prompt.place}: a store's references are tokens, which the scorer {kind!r} cannot read: use 'exact' "
                "or 'python', or prompts of a file"
            )
        if reference is None or (isinstance(reference, str) and not usable(reference)):
            what = "no reference" if reference is None else f"the reference {reference!r:.80}"
            needs = "a number" if kind == "numeric" else "one"
            raise InvalidConfigError(f"{prompt.place}: {what}, but the scorer {kind!r} needs {needs}: add it")


def _plain(judge: Callable[[Prompt, Completion], bool]) -> Scorer:
    async def score(prompt: Prompt, answer: Completion) -> float:
        return float(judge(prompt, answer))

    return Scorer(score=score, binary=True)


def _exact(config: ExactScorer, prompt: Prompt, answer: Completion) -> bool:
    if isinstance(prompt.reference, tuple):
        return answer.token_ids == prompt.reference
    texts = (answer.text.strip(), (prompt.reference or "").strip())
    said, right = (text.casefold() for text in texts) if config.ignore_case else texts
    return said == right


def _numeric(config: NumericScorer, prompt: Prompt, answer: Completion) -> bool:
    said, right = last_number(answer.text), last_number(str(prompt.reference))
    if said is None or right is None:
        return False
    return abs(said - right) <= config.tolerance * (abs(right) or 1.0)


def _regex(pattern: "regex.Pattern[str]") -> Callable[[Prompt, Completion], Awaitable[float]]:
    threads = ScorerThreads()

    def matches(prompt: Prompt, answer: Completion) -> bool:
        # Without the interpreter's lock, and with an end, neither of which Python's `re` has.
        found = list(pattern.finditer(answer.text, concurrent=True, timeout=PATTERN_S))
        if not found or not pattern.groups:
            return bool(found)
        return (found[-1].group(1) or "").strip() == str(prompt.reference).strip()

    async def score(prompt: Prompt, answer: Completion) -> float:
        try:
            return float(bool(await threads.call(matches, prompt, answer)))
        except TimeoutError as error:
            raise ScorerError(
                f"pattern {pattern.pattern!r} took more than {PATTERN_S:g} s for an answer of {len(answer.text)} "
                f"characters to {prompt.place}: write it without repeats in repeats"
            ) from error

    return score


def _python(entry_point: str) -> Callable[[Prompt, Completion], Awaitable[float]]:
    function, threads = _import(entry_point), ScorerThreads()

    async def score(prompt: Prompt, answer: Completion) -> float:
        try:
            if inspect.iscoroutinefunction(function):
                said = await function(answer.text, prompt.line)
            else:
                said = await threads.call(function, answer.text, prompt.line)
            reward = float(said)
        except Exception as error:
            raise ScorerError(f"scorer {entry_point} on {prompt.place}: {type(error).__name__}: {error}") from error
        if not math.isfinite(reward):
            raise ScorerError(f"scorer {entry_point} on {prompt.place} said {reward}: return a finite number")
        return reward

    return score


def _import(entry_point: str) -> Callable[..., object]:
    module, _, name = entry_point.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidConfigError(
            f"scorer {entry_point!r} cannot be imported: {error}; is its module installed, or on PYTHONPATH?"
        ) from error
    if not callable(function):
        raise InvalidConfigError(f"scorer {entry_point!r} is {function!r:.80}, no function")
    return function  # type: ignore[no-any-return]
