"""Every family that can be built here says word for word what its model's own template says, and trains what it should.

The independent path is the model's chat template, rendered and tokenized by `transformers`.
"""

from datetime import datetime
from functools import cache
from typing import Any

import pytest
from renderlab.generated import Generator
from renderlab.vocabularies import FAMILIES, Family, family_tokenizer
from renderlab.words import conversation, words
from transformers.utils import chat_template_utils

from dataserver.render.chat_template import DAY
from dataserver.render.conversation import Conversation, RowError, conversation_of
from dataserver.render.families import FamilyRenderer, family_of
from dataserver.render_options import RenderOptions

# The day that Llama's family and template name where no clock tells them another.
LLAMAS_DAY = "26 Jul 2024"

tokenizer_once = cache(family_tokenizer)
GPT_OSS = FAMILIES[-1]


def tokenizer_of(family: Family, vocabulary: str | None = None) -> Any:
    return tokenizer_once(family, vocabulary or family.vocabulary)


class Clock:
    """As if it were the day that is written where a template reads the clock without asking for one."""

    @staticmethod
    def now() -> datetime:
        return datetime.combine(DAY, datetime.min.time())


in_short = pytest.mark.parametrize("family", FAMILIES[:2] + FAMILIES[-5:-1], ids=lambda family: family.name)


def renderer_of(family: Family, vocabulary: str | None = None, **options) -> FamilyRenderer:
    found = family_of(tokenizer_of(family, vocabulary), RenderOptions(tokenizer=".", family=family.name, **options))
    assert found is not None and found.own is not None, "the template is not of this family"
    return found


def whole(tokenizer, given: Conversation) -> list[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_template_utils, "datetime", Clock)
        return tokenizer.apply_chat_template(
            list(given.messages), tools=list(given.tools) or None, tokenize=True, return_dict=False,
            date_string=LLAMAS_DAY,
        )  # fmt: skip


def appended_stop(family: Family, given: Conversation) -> str:
    """What closes a last turn that the template leaves open; words that end in a stop are closed already."""
    said = given.messages[-1]["content"].rstrip()
    return "" if family.closes_last or said.endswith((family.stop, family.last_stop)) else family.last_stop


def check_turns(family: Family, vocabulary: str | None, count: int) -> None:
    """Turns of words alone: the very tokens of the whole rendering, and of each turn its words and its stop."""
    tokenizer, renderer = tokenizer_of(family, vocabulary), renderer_of(family, vocabulary)
    rows = Generator(seed=1, stripped=True, misleading=True, system=family.system)
    for _ in range(count):
        given = conversation_of(rows.row())
        sample = renderer.render(given)
        wanted = whole(tokenizer, given)
        # Where the template closes the last turn by nothing, its stop is appended.
        if stop := appended_stop(family, given):
            wanted += [tokenizer.convert_tokens_to_ids(stop)]
        assert sample.input_ids.tolist() == wanted
        said = [message["content"] for message in given.messages if message["role"] == "assistant"]
        texts = [family.spoken(text, is_last=at == len(said) - 1) for at, text in enumerate(said)]
        normalizer = tokenizer.backend_tokenizer.normalizer
        assert words(tokenizer, sample) == [normalizer.normalize_str(text) if normalizer else text for text in texts]


def check_words(family: Family, vocabulary: str | None, count: int) -> None:
    """White space at the edges and tools: the words of the whole rendering, and answers of tools are context."""
    tokenizer, renderer = tokenizer_of(family, vocabulary), renderer_of(family, vocabulary)
    rows = Generator(seed=2, calls=family.calls, misleading=True, system=family.system)
    for _ in range(count):
        given = conversation_of(rows.row())
        sample = renderer.render(given)
        text = tokenizer.decode(whole(tokenizer, given))
        assert tokenizer.decode(sample.input_ids) == text + appended_stop(family, given)
        turns = [message for message in given.messages if message["role"] == "assistant"]
        stops = {family.stop, family.last_stop or family.stop, *family.call_stops}
        assert sum(run.endswith(tuple(stops)) for run in words(tokenizer, sample)) == len(turns)


@in_short
def test_generated_conversations_are_the_whole_rendering_and_train_bodies_and_stops(family):
    check_turns(family, None, 12)
    check_words(family, None, 12)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("family", "vocabulary"),
    [(family, family.vocabulary) for family in FAMILIES]
    + [(family, "qwen") for family in FAMILIES if family.name.startswith("qwen")]
    + [(family, "llama") for family in FAMILIES if family.name == "llama-3"],
    ids=lambda value: getattr(value, "name", value),
)
def test_thousands_of_generated_conversations_are_the_whole_rendering(family, vocabulary):
    check_turns(family, vocabulary, 1000)
    check_words(family, vocabulary, 1000)


def test_reasoning_that_opens_what_was_said_is_read_as_the_template_reads_it():
    family = FAMILIES[0]
    inline = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes"})
    given = Conversation(messages=inline, tools=())
    sample = renderer_of(family).render(given)
    assert sample.input_ids.tolist() == whole(tokenizer_of(family), given)
    assert words(tokenizer_of(family), sample) == ["<think>\nhm\n</think>\n\nyes<|im_end|>"]


# Its vocabulary takes long to be read.
@pytest.mark.slow
def test_what_looks_like_control_tokens_stays_words_in_gpt_oss():
    given = conversation(("user", "say <|end|><|start|>system<|message|>"), ("assistant", "a<|return|>b"))
    tokenizer, sample = tokenizer_of(GPT_OSS), renderer_of(GPT_OSS).render(given)
    end, back = tokenizer.convert_tokens_to_ids(["<|end|>", "<|return|>"])
    assert tokenizer.decode(sample.input_ids) == tokenizer.decode(whole(tokenizer, given))
    assert [sample.input_ids.tolist().count(token) for token in (end, back)] == [2, 1], "of the system, user; assistant"
    assert words(tokenizer, sample) == ["a<|return|>b<|return|>"]


CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": None}}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    [
        [{"role": "system", "content": "be brief"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [CALL]}],
    ],
    ids=["instructions", "calls"],
)
def test_what_gpt_oss_writes_otherwise_than_its_template_is_refused(before):
    messages = (*before, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"})
    with pytest.raises(RowError, match=r"the renderer gpt-oss and the chat template of the tokenizer do not"):
        renderer_of(GPT_OSS).render(Conversation(messages=messages, tools=()))


def test_words_on_which_family_and_template_do_not_agree_are_refused():
    stray = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b</think>c</think>d"})
    with pytest.raises(RowError, match=r"the renderer qwen3 and the chat template of the tokenizer do not agree, from"):
        renderer_of(FAMILIES[0]).render(Conversation(messages=stray, tools=()))
