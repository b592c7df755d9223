"""A family's masks are those that its own package makes for training, whatever is selected."""

from functools import cache

import pytest
from renderlab.tokenizers import build_tokenizer
from renderlab.vocabularies import FAMILIES, family_tokenizer, template_of
from renderlab.words import conversation

from dataserver.errors import InvalidConfigError
from dataserver.render.conversation import Conversation
from dataserver.render.families import TURNS_BY_CONSTRUCTION, config_of, family_of
from dataserver.render.lean_tokenizer import LeanTokenizer
from dataserver.render.sample import selected_messages
from dataserver.render.tokenizer import load_tokenizer, open_renderer
from dataserver.render_options import RenderOptions

CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": None}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}

CONVERSATIONS = [
    conversation(("user", "a"), ("assistant", "b")),
    conversation(("system", "s"), ("user", "a"), ("assistant", ""), ("user", "c"), ("assistant", " d\n")),
    conversation(("user", "a"), ("assistant", "b"), ("user", "the last word")),
    conversation(("user", "say <|im_end|> and <|user|>"), ("assistant", "你好 🙂")),
    Conversation(
        messages=(
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "one"},
            {"role": "assistant", "content": "b", "reasoning_content": "hm"},
        ),
        tools=(TOOL,),
    ),
]

load = cache(load_tokenizer)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A tokenizer without a template."""
    return build_tokenizer(tmp_path_factory.mktemp("tokenizer") / "plain", None)


@pytest.mark.parametrize("family", ["qwen3", "glm-4.5", "llama-3"])
@pytest.mark.parametrize("roles", [("assistant",), ("assistant", "tool", "user"), ("user",)])
@pytest.mark.parametrize("train_on", ["all", "last"])
def test_masks_are_what_the_package_makes_for_training(plain, family, roles, train_on):
    from renderers.base import build_training_sample, create_renderer
    from renderers.configs import config_from_name

    options = RenderOptions(tokenizer=plain, family=family, roles=roles, train_on=train_on)
    ours, theirs = open_renderer(options), create_renderer(load(plain), config_from_name(family))
    for given in CONVERSATIONS:
        built = build_training_sample(
            theirs,
            list(given.messages),
            tools=list(given.tools) or None,
            role_to_mask=lambda message: message["role"] == "assistant",
            content_sft_roles=set(roles) - {"assistant"},
            ensure_final_stop=True,
            message_loss_mask=selected_messages(given, options),
        )
        sample = ours.render(given)
        assert sample.input_ids.tolist() == built.token_ids
        assert sample.loss_mask.tolist() == [bool(target) for target in built.loss_mask]


def test_the_lean_tokenizer_gives_what_the_whole_one_gives_and_no_one_can_change_it(chatml):
    whole, lean = load(chatml), LeanTokenizer(load(chatml), places=True)
    for text in ("", "a", "<|im_end|>\n", "Grüße 🙂 " * 40):
        for _ in range(2):
            ids = lean.encode(text, add_special_tokens=False)
            assert ids == whole.encode(text, add_special_tokens=False)
            ids.append(7)
            found = lean(text, add_special_tokens=False, return_offsets_mapping=True)
            wanted = whole(text, add_special_tokens=False, return_offsets_mapping=True)
            assert found == {name: wanted[name] for name in ("input_ids", "offset_mapping")}
            found["offset_mapping"].clear()
    assert lean.convert_tokens_to_ids("<|im_end|>") == whole.convert_tokens_to_ids("<|im_end|>")
    with pytest.raises(NotImplementedError):
        LeanTokenizer(load(chatml), places=False)("a", return_offsets_mapping=True)


def test_families_that_need_no_places_are_those_whose_masks_are_compared():
    assert {family.name for family in FAMILIES} == TURNS_BY_CONSTRUCTION


def test_a_name_alone_chooses_no_family_whose_words_are_not_the_templates():
    tokenizer = family_tokenizer(FAMILIES[0])
    tokenizer.name_or_path = "Qwen/Qwen3-4B-Instruct-2507"
    assert family_of(tokenizer, RenderOptions(tokenizer="there")).name == "qwen3"
    tokenizer.chat_template = template_of("qwen3_instruct_2507")
    assert family_of(tokenizer, RenderOptions(tokenizer="there")) is None, "this one thinks in no turn"
    with pytest.raises(
        InvalidConfigError, match=r"'qwen3' and the chat template in 'there' do not write the same, from"
    ):
        family_of(tokenizer, RenderOptions(tokenizer="there", family="qwen3"))


def test_a_token_that_joins_a_body_with_scaffolding_is_no_target_and_counted():
    tokenizer = family_tokenizer(FAMILIES[0])
    renderer = family_of(tokenizer, RenderOptions(tokenizer=".", family="qwen3", roles=("tool",)))
    calls = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [CALL]})
    for said, trained, joined in (
        ('{"sum": 306}', '{"sum": 306', 1), ("306", "306", 0), ("306 \n\n", "306", 1), ("", "", 0), ("}", "", 1),
    ):  # fmt: skip
        given = Conversation(messages=(*calls, {"role": "tool", "content": said}), tools=(TOOL,))
        sample = renderer.render(given)
        assert tokenizer.decode(sample.input_ids[sample.loss_mask]) == trained
        assert sample.joined == joined, said


def test_no_family_asks_a_clock():
    from renderers.base import MODEL_RENDERER_MAP

    for name in set(MODEL_RENDERER_MAP.values()):
        days = {field: value for field, value in config_of(name).model_dump().items() if "date" in field}
        assert all(isinstance(day, str) and any(map(str.isdigit, day)) for day in days.values()), name
    assert config_of("gpt-oss").conversation_start_date == "2025-06-28"
