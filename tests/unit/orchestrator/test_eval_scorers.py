import asyncio
import sys
from types import ModuleType

import pytest

from dataserver.errors import InvalidConfigError
from orchestrator.engines.interface import Completion
from orchestrator.errors import ScorerError
from orchestrator.evals import scorers
from orchestrator.evals.config import ExactScorer, NumericScorer, PythonScorer, RegexScorer
from orchestrator.evals.prompts import Prompt
from orchestrator.evals.scorers import last_number, make_scorer


def prompt(reference: object = None, **line: object) -> Prompt:
    return Prompt(question="?", reference=reference, line=line, place="prompts.jsonl, line 3")


def said(text: str, *token_ids: int) -> Completion:
    return Completion(text=text, token_ids=token_ids, finish_reason="stop", versions=())


def score(config, asked: Prompt, answer: Completion) -> float:
    return asyncio.run(make_scorer(config, [asked]).score(asked, answer))


@pytest.mark.parametrize(
    ("config", "reference", "text", "expected"),
    [
        (ExactScorer(), "olleh", " olleh\n", 1),
        (ExactScorer(), "olleh", "Olleh", 0),
        (ExactScorer(ignore_case=True), "STRASSE", "straße", 1),
        (NumericScorer(kind="numeric"), "42", "so 6 times 7 is 42.", 1),
        (NumericScorer(kind="numeric"), "1234.5", "$1,234.50", 1),
        (NumericScorer(kind="numeric"), "42", "42 or 43", 0),
        (NumericScorer(kind="numeric"), "42", "no idea", 0),
        (NumericScorer(kind="numeric"), "0", "-0.0", 1),
        (NumericScorer(kind="numeric", tolerance=0.1), "100", "95", 1),
        (NumericScorer(kind="numeric", tolerance=0.1), "100", "89", 0),
        (
            RegexScorer(kind="regex", pattern=r"<answer>(.*?)</answer>"),
            "b",
            "<answer>a</answer><answer> b </answer>",
            1,
        ),
        (RegexScorer(kind="regex", pattern=r"<answer>(.*?)</answer>"), "b", "b", 0),
        (RegexScorer(kind="regex", pattern=r"(?i)sorry"), None, "I am SORRY", 1),
        (RegexScorer(kind="regex", pattern=r"sorry"), None, "fine", 0),
    ],
)
def test_an_answer_scores_one_or_nothing(config, reference, text, expected):
    assert score(config, prompt(reference), said(text)) == expected
    assert make_scorer(config, [prompt(reference)]).binary


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("a7 b8c v1.2.3", None),
        ("3 apples, -2.5e1 pears", -25),
        ("1,000,000 and 12,34", 34),
        ("10%", 10),
        ("", None),
    ],
)
def test_numbers_are_read_as_people_write_them(text, number):
    assert last_number(text) == number


def test_tokens_of_a_store_are_compared_as_tokens():
    asked = prompt((5, 6, 2))
    assert score(ExactScorer(), asked, said("whatever", 5, 6, 2)) == 1
    assert score(ExactScorer(), asked, said("whatever", 5, 6)) == 0
    with pytest.raises(InvalidConfigError, match="'numeric' cannot read: use 'exact' or 'python'"):
        make_scorer(NumericScorer(kind="numeric"), [asked])


@pytest.mark.parametrize(
    ("config", "reference", "told"),
    [
        (ExactScorer(), None, "line 3: no reference, but the scorer 'exact' needs one"),
        (
            NumericScorer(kind="numeric"),
            "many",
            "line 3: the reference 'many', .*'numeric' needs a number",
        ),
        (RegexScorer(kind="regex", pattern="(a)"), None, "line 3: no reference, but the scorer 'regex'"),
    ],
)
def test_a_prompt_that_cannot_be_judged_is_refused_before_the_start(config, reference, told):
    with pytest.raises(InvalidConfigError, match=told):
        make_scorer(config, [prompt(reference)])


def test_a_pattern_that_finds_no_end_is_named_and_leaves_the_loop_free(monkeypatch):
    monkeypatch.setattr(scorers, "PATTERN_S", 0.2)
    scorer = make_scorer(RegexScorer(kind="regex", pattern="(?:a|aa)+$"), [])

    async def judged():
        task = asyncio.ensure_future(scorer.score(prompt(), said("a" * 45 + "b")))
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return turns, task.exception()

    turns, error = asyncio.run(judged())
    assert turns > 10
    assert isinstance(error, ScorerError)
    assert "took more than 0.2 s for an answer of 46 characters to prompts.jsonl, line 3" in str(error)


@pytest.fixture
def rewards(monkeypatch):
    module = ModuleType("rewards_of_a_test")

    async def later(text, line):
        await asyncio.sleep(0)
        return len(text) / line["best"]

    module.later = later
    module.plain = lambda text, line: text == line["best"]
    module.nan = lambda text, line: float("nan")
    module.fails = lambda text, line: line["nosuch"]
    module.leaves = lambda text, line: sys.exit(3)
    module.constant = 3
    monkeypatch.setitem(sys.modules, "rewards_of_a_test", module)
    return lambda name: PythonScorer(kind="python", entry_point=f"rewards_of_a_test:{name}")


def test_a_function_of_ones_own_judges_by_the_whole_line(rewards):
    assert score(rewards("later"), prompt(best=4), said("abc")) == 0.75
    assert score(rewards("plain"), prompt(best="abc"), said("abc")) == 1.0
    assert not make_scorer(rewards("later"), []).binary


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nan", "line 3 said nan: return a finite"),
        ("fails", "KeyError: 'nosuch'"),
        ("leaves", r"raised SystemExit\(3\)"),
    ],
)
def test_a_function_that_fails_names_the_prompt(rewards, name, told):
    with pytest.raises(ScorerError, match=told):
        score(rewards(name), prompt(), said("abc"))


def test_a_function_that_is_none_is_refused_before_the_start(rewards):
    for config, told in (
        (rewards("nosuch"), "cannot be imported: .*nosuch"),
        (rewards("constant"), "is 3, no function"),
        (PythonScorer(kind="python", entry_point="no_such_module:score"), "is its module installed"),
    ):
        with pytest.raises(InvalidConfigError, match=told):
            make_scorer(config, [])
