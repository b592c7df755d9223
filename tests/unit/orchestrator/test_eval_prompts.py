from pathlib import Path

import pytest

from dataserver.errors import InvalidConfigError
from orchestrator.evals.config import EvalConfig
from orchestrator.evals.loading import load_questions
from orchestrator.evals.prompts import load_prompts, split_at_first_target


def config(path: Path, **fields: object) -> EvalConfig:
    prompts = {"file": str(path)} | fields
    return EvalConfig.model_validate({"name": "e", "interval": 1, "prompts": prompts, "sampling": {"max_tokens": 8}})


def test_lines_become_prompts_and_blank_ones_none(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"prompt": "2+2=", "reference": 4, "level": "easy"}\n\n'
        '{"messages": [{"role": "user", "content": "hi", "name": "x"}], "reference": "hello"}\n'
    )
    text, chat = load_prompts(config(path))
    assert (text.question, text.reference, text.line["level"]) == ("2+2=", "4", "easy")
    assert (chat.question, chat.reference) == (({"role": "user", "content": "hi"},), "hello")
    assert chat.place == f"{path}, line 3"
    assert [prompt.question for prompt in load_prompts(config(path, limit=1))] == ["2+2="]
    assert load_questions(config(path)).count == 2


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1: no JSON"),
        ("[1]", "either 'prompt' or 'messages'"),
        ('{"reference": "a"}', "either 'prompt' or 'messages'"),
        ('{"prompt": "a", "messages": []}', "either 'prompt' or 'messages'"),
        ('{"prompt": ""}', "give a text that is not empty"),
        ('{"messages": []}', "give a list of messages"),
        ('{"messages": [{"role": "user"}]}', "give 'role' and 'content', both texts"),
        ('{"prompt": "a", "reference": [1]}', "give a text or a number"),
        ('{"prompt": "a", "reference": true}', "give a text or a number"),
        ("", "holds no prompt"),
    ],
)
def test_a_line_that_is_no_prompt_is_refused_by_file_line_and_value(tmp_path, line, told):
    path = tmp_path / "prompts.jsonl"
    path.write_text(line)
    with pytest.raises(InvalidConfigError, match=told) as refusal:
        load_prompts(config(path))
    assert str(path) in refusal.value.message


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidConfigError, match=r"cannot read the prompts .*nosuch\.jsonl: No such file"):
        load_prompts(config(tmp_path / "nosuch.jsonl"))


def test_a_row_is_asked_up_to_its_first_target():
    assert split_at_first_target([1, 2, 3, 4, 5, 6], [False, False, True, True, False, True]) == ((1, 2), (3, 4))
    assert split_at_first_target([1, 2], [False, True]) == ((1,), (2,))
