"""A template that says where the model speaks is believed, to the letter; where it does not tell enough, it is not."""

from functools import cache

import pytest
from renderlab.tokenizers import MARKED, build_tokenizer
from renderlab.words import conversation, words

from dataserver.errors import InvalidConfigError
from dataserver.render import tokenizer as tokenizers
from dataserver.render.conversation import Conversation, RowError
from dataserver.render_options import RenderOptions

open_renderer = cache(tokenizers.open_renderer)

THOUGHT = {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
ASKED = {"role": "user", "content": "really?"}
CALL = {"type": "function", "function": {"name": "f", "arguments": {}}}


@pytest.fixture(scope="module")
def loaded(marked):
    return tokenizers.load_tokenizer(marked)


def rendered(tokenizer, messages, **options):
    renderer = open_renderer(RenderOptions(tokenizer=tokenizer, family="template", **options))
    return renderer.render(Conversation(messages=tuple(messages), tools=()))


def test_turns_that_are_rewritten_later_are_targets_where_the_template_marks_them(marked, loaded):
    messages = [ASKED, THOUGHT, ASKED, THOUGHT]
    sample = rendered(marked, messages)
    whole = loaded.apply_chat_template(messages, return_assistant_tokens_mask=True, return_dict=True)
    assert sample.input_ids.tolist() == whole["input_ids"]
    assert words(loaded, sample) == ["yes<|im_end|>", "<think>hm</think>yes<|im_end|>"]
    stops = sample.input_ids == loaded.eos_token_id
    assert (sample.loss_mask & ~stops).tolist() == [bool(said) for said in whole["assistant_masks"]]


def test_the_last_turn_is_the_last_mark_and_other_roles_are_found_without_marks(marked, loaded):
    messages = [{"role": "assistant", "content": "hi"}, ASKED, {"role": "assistant", "content": "no"}]
    assert words(loaded, rendered(marked, messages)) == ["hi<|im_end|>", "no<|im_end|>"]
    assert words(loaded, rendered(marked, messages, train_on="last")) == ["no<|im_end|>"]
    assert words(loaded, rendered(marked, messages, roles=("user",))) == ["really?"]


def test_an_empty_turn_is_its_stop_token(marked, loaded):
    messages = [ASKED, {"role": "assistant", "content": ""}, ASKED, {"role": "assistant", "content": "no"}]
    assert words(loaded, rendered(marked, messages)) == ["<|im_end|>", "no<|im_end|>"]


def test_marks_that_do_not_tell_turns_apart_are_no_help_for_the_last_one(marked, loaded):
    messages = [ASKED, {"role": "assistant", "content": "a", "tool_calls": [CALL]}, ASKED, THOUGHT]
    said = words(loaded, rendered(marked, messages))
    assert said[-1] == "<think>hm</think>yes<|im_end|>"
    assert said[0].startswith("a[")
    assert words(loaded, rendered(marked, messages, train_on="last")) == ["<think>hm</think>yes<|im_end|>"]


@pytest.mark.parametrize(
    ("template", "error", "reason"),
    [
        (
            "{% macro turn(m) %}{{ '<|im_start|>' }}{% generation %}{{ m.content }}{% endgeneration %}"
            "{{ '<|im_end|>' }}{% endmacro %}{% for m in messages %}{{ turn(m) }}{% endfor %}",
            RowError,
            "`generation` inside of a macro",
        ),
        ("{% for m in messages %}{% generation %}", InvalidConfigError, "the chat template cannot be compiled"),
    ],
)
def test_marks_whose_place_is_not_known_are_refused(tmp_path, template, error, reason):
    tokenizer = build_tokenizer(tmp_path / "tokenizer", template)
    with pytest.raises(error, match=reason):
        rendered(tokenizer, [ASKED, THOUGHT])


def test_a_template_that_marks_too_little_is_read_without_its_marks(tmp_path):
    once = MARKED.replace(
        "{%- if message.role == 'assistant' %}", "{%- if message.role == 'assistant' and loop.last %}"
    )
    tokenizer = build_tokenizer(tmp_path / "tokenizer", once)
    sample = rendered(
        tokenizer, conversation(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")).messages
    )
    assert words(tokenizers.load_tokenizer(tokenizer), sample) == ["b<|im_end|>", "d<|im_end|>"]
