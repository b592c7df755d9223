"""A row, as people store conversations, made into messages and tools; or the reason why it cannot be.

    messages                        ──┐
    prompt + completion (text, chat) ─┴─> roles, content, tool calls, without the nulls that Arrow's union adds
    tools | tool_defs (list or JSON) ───> OpenAI form

Columns that one source has and another lacks come out of Arrow as null everywhere, and so do keys of messages. So
what counts is whether a value is there, not whether its key is. Inside of tool-call arguments null is a value.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

ROLES: Final = ("system", "developer", "user", "assistant", "tool")

# Whatever JSON can say.
Json: TypeAlias = Any
Message: TypeAlias = dict[str, Json]


class RowError(Exception):
    """A row is no conversation; the message says why, without saying which row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a template renders. `tools` is empty where there are none."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Json], ...]


def conversation_of(row: Mapping[str, Json]) -> Conversation:
    """The conversation in a row; raises `RowError`."""
    if row.get("messages") is not None:
        messages = _listed(row["messages"], "messages")
    elif row.get("prompt") is not None and row.get("completion") is not None:
        messages = [*_side(row["prompt"], "prompt", "user"), *_side(row["completion"], "completion", "assistant")]
    else:
        raise RowError(
            f"it has neither 'messages' nor both 'prompt' and 'completion', only {_filled(row)}; rename the columns"
        )
    if not messages:
        raise RowError("its list of messages is empty")
    return Conversation(
        messages=tuple(_message(entry, index) for index, entry in enumerate(messages)), tools=_tools(row)
    )


def _filled(row: Mapping[str, Json]) -> list[str]:
    return sorted(name for name, value in row.items() if value is not None)


def _listed(value: object, name: str) -> list[Json]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise RowError(f"'{name}' is {_kind(value)}, not a list of messages")
    return list(value)


def _side(value: object, name: str, role: str) -> list[Json]:
    """A prompt or completion: text said by `role`, or messages that name their own."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return [
        {"role": role, **_without_nulls(entry)} if isinstance(entry, dict) else entry for entry in _listed(value, name)
    ]


def _message(entry: object, index: int) -> Message:
    where = f"messages[{index}]"
    if not isinstance(entry, dict):
        raise RowError(f"{where} is {_kind(entry)}, not an object with role and content")
    message = {key: value if key == "tool_calls" else _without_nulls(value) for key, value in entry.items()}
    message = {key: value for key, value in message.items() if value is not None}
    role = message.get("role")
    if role not in ROLES:
        raise RowError(f"{where} has the role {role!r}; known are {', '.join(ROLES)}")
    if message.get("tool_calls"):
        message["tool_calls"] = _tool_calls(message["tool_calls"], where)
    else:
        message.pop("tool_calls", None)
    _check_content(message, where)
    return message


def _check_content(message: Message, where: str) -> None:
    content = message.get("content")
    if content is None or content == []:
        if message["role"] == "assistant" and message.get("tool_calls"):
            message["content"] = ""
            return
        raise RowError(f"{where} ({message['role']}) has no content")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise RowError(f"{where}.content is {_kind(content)}, not text or a list of parts")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else _kind(part)
        if kind not in ("text", "thinking") or not isinstance(part.get(kind), str):
            raise RowError(f"{where}.content has a part of type {kind!r}; only text and thinking are rendered")


def _tool_calls(calls: object, where: str) -> list[dict[str, Json]]:
    if not isinstance(calls, list):
        raise RowError(f"{where}.tool_calls is {_kind(calls)}, not a list")
    return [_tool_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: object, where: str) -> dict[str, Json]:
    """OpenAI's form, whose arguments are an object: as a string of JSON some templates would quote them twice."""
    if not isinstance(call, dict):
        raise RowError(f"{where} is {_kind(call)}, not an object")
    inner = call.get("function")
    function = inner if isinstance(inner, dict) else call
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name:
        raise RowError(f"{where} names no function")
    if isinstance(arguments, str):
        arguments = _parsed(arguments or "{}", f"{where}.arguments")
    arguments = {} if arguments is None else arguments
    if not isinstance(arguments, dict):
        raise RowError(f"{where}.arguments is {_kind(arguments)}, not an object")
    rest = {key: value for key, value in call.items() if key in ("id",) and value is not None}
    return {**rest, "type": "function", "function": {"name": name, "arguments": arguments}}


def _tools(row: Mapping[str, Json]) -> tuple[dict[str, Json], ...]:
    name = "tools" if row.get("tools") is not None else "tool_defs"
    tools = row.get(name)
    if tools is None:
        return ()
    tools = _parsed(tools or "[]", name) if isinstance(tools, str) else _without_nulls(tools)
    if not isinstance(tools, list):
        raise RowError(f"'{name}' is {_kind(tools)}, not a list of tools")
    return tuple(_tool(tool, f"{name}[{index}]") for index, tool in enumerate(tools))


def _tool(tool: object, where: str) -> dict[str, Json]:
    """OpenAI's form; a bare function is wrapped."""
    if isinstance(tool, str):
        tool = _parsed(tool, where)
    if not isinstance(tool, dict):
        raise RowError(f"{where} is {_kind(tool)}, not an object")
    function = tool.get("function", tool)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RowError(f"{where} names no function")
    return {"type": "function", "function": function}


def _parsed(text: str, where: str) -> Json:
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise RowError(f"{where} is no JSON ({error}): {text[:80]!r}") from error


def _no_constant(name: str) -> Json:
    """Python reads NaN and infinities, which JSON does not have, and a template would write them."""
    raise ValueError(f"{name} is not a value that JSON has")


def _without_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands twice in one object")
    return found


def _without_nulls(value: Json) -> Json:
    """Objects without their null keys, all the way down; null elements of lists stay."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
