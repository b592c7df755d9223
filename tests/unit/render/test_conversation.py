"""Rows of every shape that people store become the same messages, or are refused with the reason."""

import json

import pytest

from dataserver.render.conversation import RowError, conversation_of

ASKED = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "hello"}


def messages_of(row):
    return list(conversation_of(row).messages)


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [ASKED, SAID]},
        {"messages": [ASKED, SAID], "prompt": "other", "completion": "words"},
        {"messages": None, "prompt": "hi", "completion": "hello"},
        {"prompt": [ASKED], "completion": "hello"},
        {"prompt": "hi", "completion": [{"content": "hello", "role": None}]},
        {"prompt": [{"content": "hi", "name": None}], "completion": [SAID]},
        {"messages": [{**ASKED, "tool_calls": None, "name": None}, {**SAID, "tool_calls": []}]},
    ],
)
def test_every_form_of_a_row_gives_the_same_messages(row):
    assert messages_of(row) == [ASKED, SAID]


def test_nulls_are_noise_but_for_tool_call_arguments():
    arguments = {"city": None, "options": [None, {"unit": None}]}
    call = {"id": "1", "type": None, "function": {"name": "weather", "arguments": arguments}}
    [message] = messages_of(
        {"messages": [{"role": "assistant", "content": None, "extra": {"a": None}, "tool_calls": [call]}]}
    )
    assert message == {
        "role": "assistant",
        "content": "",
        "extra": {},
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "weather", "arguments": arguments}}],
    }


@pytest.mark.parametrize("arguments", ['{"a": 1, "b": null}', {"a": 1, "b": None}])
@pytest.mark.parametrize("bare", [True, False])
def test_tool_calls_come_out_in_one_form(arguments, bare):
    function = {"name": "f", "arguments": arguments}
    call = function if bare else {"type": "function", "function": function}
    [message] = messages_of({"messages": [{"role": "assistant", "content": "x", "tool_calls": [call]}]})
    assert message["tool_calls"] == [{"type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": None}}}]


@pytest.mark.parametrize("name", ["tools", "tool_defs"])
@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("bare", [True, False])
def test_tools_come_out_in_one_form(name, as_text, bare):
    function = {"name": "f", "description": "does f", "parameters": {"type": "object", "properties": {}}}
    tools = [function if bare else {"type": "function", "function": function}]
    row = {"messages": [ASKED], "tools": None, "tool_defs": None, name: json.dumps(tools) if as_text else tools}
    assert list(conversation_of(row).tools) == [{"type": "function", "function": function}]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "hi"}, r"neither 'messages' nor both 'prompt' and 'completion', only \['text'\]"),
        ({"prompt": "hi", "completion": None}, r"only \['prompt'\]"),
        ({"messages": []}, "its list of messages is empty"),
        ({"messages": "hi"}, "'messages' is text, not a list"),
        ({"messages": {"role": "user"}}, "'messages' is an object, not a list"),
        ({"messages": [ASKED, "hello"]}, r"messages\[1\] is text, not an object"),
        ({"messages": [{"role": "human", "content": "hi"}]}, r"messages\[0\] has the role 'human'; known are system"),
        ({"messages": [{"content": "hi"}]}, r"messages\[0\] has the role None"),
        ({"messages": [{"role": "user", "content": None}]}, r"messages\[0\] \(user\) has no content"),
        ({"messages": [{"role": "assistant"}]}, r"messages\[0\] \(assistant\) has no content"),
        ({"messages": [{"role": "user", "content": 7}]}, r"content is a number, not text"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "url": "x"}]}]}, "a part of type 'image'"),
        ({"messages": [{**SAID, "tool_calls": "f()"}]}, "tool_calls is text, not a list"),
        ({"messages": [{**SAID, "tool_calls": [{"function": {"arguments": {}}}]}]}, "names no function"),
        ({"messages": [{**SAID, "tool_calls": [{"name": "f", "arguments": "{"}]}]}, "arguments is no JSON"),
        ({"messages": [{**SAID, "tool_calls": [{"name": "f", "arguments": "[1]"}]}]}, "arguments is a list"),
        ({"messages": [{**SAID, "tool_calls": [{"name": "f", "arguments": '{"a": NaN}'}]}]}, "NaN is not a value"),
        ({"messages": [{**SAID, "tool_calls": [{"name": "f", "arguments": '{"a": -Infinity}'}]}]}, "-Infinity is not"),
        (
            {"messages": [{**SAID, "tool_calls": [{"name": "f", "arguments": '{"a": {"b": 1, "b": 2}}'}]}]},
            "'b' stands twice",
        ),
        ({"messages": [ASKED], "tools": "[{]"}, "tools is no JSON"),
        ({"messages": [ASKED], "tools": [{"description": "x"}]}, r"tools\[0\] names no function"),
    ],
)
def test_a_row_that_is_no_conversation_is_refused_with_the_reason(row, reason):
    with pytest.raises(RowError, match=reason):
        conversation_of(row)
