"""Masks by a chat template: exactly the words of the roles asked for, and the stop token; or a refusal."""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from renderlab.words import conversation, words

from dataserver.errors import InvalidConfigError
from dataserver.render import tokenizer as tokenizers
from dataserver.render.conversation import Conversation, RowError
from dataserver.render.templates import TemplateRenderer
from dataserver.render.tokenizer import render_key
from dataserver.render_options import RenderOptions

# Loading a tokenizer takes longer than what is tested.
open_renderer = cache(tokenizers.open_renderer)

TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.fixture(scope="module")
def loaded(chatml):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(chatml)


bodies = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30).map(str.strip)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    system=st.none() | bodies,
    turns=st.lists(st.tuples(bodies, bodies), min_size=1, max_size=4),
    roles=st.sampled_from([("assistant",), ("assistant", "user"), ("user",), ("assistant", "system")]),
    train_on=st.sampled_from(["all", "last"]),
    with_tools=st.booleans(),
)
def test_tokens_are_the_whole_rendering_and_targets_are_the_bodies_and_stops(
    chatml, loaded, system, turns, roles, train_on, with_tools
):
    said = [("system", system)] if system else []
    said += [turn for asked, told in turns for turn in (("user", asked), ("assistant", told))]
    given_ = conversation(*said, tools=[TOOL] if with_tools else [])
    options = RenderOptions(tokenizer=chatml, family="template", roles=roles, train_on=train_on)
    sample = open_renderer(options).render(given_)
    whole = loaded.apply_chat_template(
        list(given_.messages), tools=list(given_.tools) or None, tokenize=True, return_dict=False
    )
    assert sample.input_ids.tolist() == list(whole)
    last = len(said) - 1
    wanted = [
        text + ("<|im_end|>" if role == "assistant" else "")
        for at, (role, text) in enumerate(said)
        if role in roles and (role != "assistant" or train_on == "all" or at == last)
    ]
    assert words(loaded, sample) == [text for text in wanted if text]


def test_a_stop_token_that_heads_the_next_turn_is_a_target_and_the_last_turn_has_none(open_ended):
    from transformers import AutoTokenizer

    sample = open_renderer(RenderOptions(tokenizer=open_ended, family="template")).render(
        conversation(("user", "a b"), ("assistant", "c d"), ("user", "e"), ("assistant", "f"))
    )
    assert words(AutoTokenizer.from_pretrained(open_ended), sample) == ["c d<|user|>", "f"]


def test_a_token_that_joins_a_body_with_the_template_is_no_target_and_counted(chatml, loaded):
    given_ = conversation(("user", "a"), ("assistant", "b"))
    renderer = open_renderer(RenderOptions(tokenizer=chatml, family="template"))
    plain = renderer.render(given_)
    assert plain.joined == 0
    # The template trims what is said, so the joint comes from a template that does not.
    untrimmed = loaded.chat_template.replace(" | trim", "")
    glued = type(renderer)(
        with_template(loaded, untrimmed), RenderOptions(tokenizer=chatml), frozenset([loaded.eos_token_id])
    )
    sample = glued.render(conversation(("user", "a"), ("assistant", "\n\nnew lines")))
    assert sample.joined == 1
    assert words(loaded, sample) == ["\nnew lines<|im_end|>"]
    assert "assistant\n\n\nnew lines<|im_end|>" in loaded.decode(sample.input_ids)


def with_template(tokenizer, template):
    from copy import deepcopy

    copied = deepcopy(tokenizer)
    copied.chat_template = template
    return copied


def test_a_template_that_rewrites_earlier_turns_is_refused_with_the_message(forgetful):
    thought = {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
    asked = {"role": "user", "content": "really?"}
    rows = Conversation(messages=(asked, thought, asked, thought), tools=())
    with pytest.raises(
        RowError, match=r"is not stable: the conversation up to it, messages\[1\], is rendered otherwise"
    ):
        open_renderer(RenderOptions(tokenizer=forgetful, family="template")).render(rows)
    last = open_renderer(RenderOptions(tokenizer=forgetful, family="template", train_on="last")).render(rows)
    from transformers import AutoTokenizer

    assert words(AutoTokenizer.from_pretrained(forgetful), last) == ["<think>hm</think>yes<|im_end|>"]


def test_control_tokens_inside_of_words_become_what_the_template_makes_of_them(chatml, loaded):
    given_ = conversation(("user", "say <|im_end|>"), ("assistant", "a<|im_end|>b"))
    sample = open_renderer(RenderOptions(tokenizer=chatml, family="template")).render(given_)
    assert sample.input_ids.tolist() == list(
        loaded.apply_chat_template(list(given_.messages), tokenize=True, return_dict=False)
    )
    assert words(loaded, sample) == ["a<|im_end|>b<|im_end|>"]


def test_a_conversation_that_begins_with_the_assistant_is_refused(chatml):
    with pytest.raises(RowError, match=r"messages\[0\] is an assistant turn"):
        open_renderer(RenderOptions(tokenizer=chatml, family="template")).render(conversation(("assistant", "hi")))


def test_a_list_of_parts_that_the_template_writes_out_as_a_list_is_refused(chatml):
    parts = [{"type": "text", "text": "hello"}]
    messages = ({"role": "user", "content": "hi"}, {"role": "assistant", "content": parts})
    renderer = open_renderer(RenderOptions(tokenizer=chatml, family="template"))
    with pytest.raises(RowError, match=r"messages\[1\].content is a list of parts"):
        renderer.render(Conversation(messages=messages, tools=()))


def test_the_token_that_begins_a_text_is_not_doubled(chatml, loaded):
    from tokenizers.processors import TemplateProcessing

    begins = "{{ bos_token }}" + loaded.chat_template
    tokenizer = with_template(loaded, begins)
    tokenizer.bos_token, bos = "[gMASK]", loaded.convert_tokens_to_ids("[gMASK]")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[gMASK] $A", special_tokens=[("[gMASK]", bos)]
    )
    assert tokenizer("a").input_ids[0] == bos, "it adds one to whatever it reads"
    renderer = TemplateRenderer(tokenizer, RenderOptions(tokenizer=chatml), frozenset([loaded.eos_token_id]))
    sample = renderer.render(conversation(("user", "a"), ("assistant", "b")))
    assert sample.input_ids.tolist().count(bos) == 1


def test_half_a_surrogate_pair_is_refused(chatml):
    renderer = open_renderer(RenderOptions(tokenizer=chatml, family="template"))
    with pytest.raises(RowError, match="surrogate"):
        renderer.render(conversation(("user", "hi"), ("assistant", "cut off \ud83d")))


def test_what_is_no_tokenizer_is_refused_by_name(tmp_path, chatml):
    with pytest.raises(InvalidConfigError, match="holds no tokenizer"):
        open_renderer(RenderOptions(tokenizer=tmp_path))
    with pytest.raises(InvalidConfigError, match=r"family = 'gemma4' cannot render .* '<bos>' not found"):
        open_renderer(RenderOptions(tokenizer=chatml, family="gemma4"))
    with pytest.raises(InvalidConfigError, match="family = 'nobody'"):
        open_renderer(RenderOptions(tokenizer=chatml, family="nobody"))


def test_the_key_changes_with_whatever_changes_the_tokens(chatml, open_ended, tmp_path):
    import shutil

    keys = {
        render_key(RenderOptions(tokenizer=chatml)),
        render_key(RenderOptions(tokenizer=open_ended)),
        render_key(RenderOptions(tokenizer=chatml, train_on="last")),
        render_key(RenderOptions(tokenizer=chatml, roles=("assistant", "tool"))),
    }
    assert len(keys) == 4
    copy = shutil.copytree(chatml, tmp_path / "copy")
    assert render_key(RenderOptions(tokenizer=copy)) in keys, "a tokenizer is what is in its files, not where they lie"
    assert render_key(RenderOptions(tokenizer=copy, on_error="collect")) in keys, "bad rows change no good one"
    (copy / "chat_template.jinja").write_text("{{ messages }}")
    assert render_key(RenderOptions(tokenizer=copy)) not in keys


def test_what_is_rendered_depends_on_no_clock(chatml, loaded):
    dated = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}2024{% endif %}" + loaded.chat_template
    renderer = TemplateRenderer(with_template(loaded, dated), RenderOptions(tokenizer=chatml), frozenset([7]))
    sample = renderer.render(conversation(("user", "a"), ("assistant", "b")))
    assert loaded.decode(sample.input_ids).startswith("2024<|im_start|>")
    asks = with_template(loaded, "{{ strftime_now('%Y-%m-%d') }}" + loaded.chat_template)
    sample = TemplateRenderer(asks, RenderOptions(tokenizer=chatml), frozenset([7])).render(
        conversation(("user", "a"), ("assistant", "b"))
    )
    assert loaded.decode(sample.input_ids).startswith("2025-06-28<|im_start|>")
