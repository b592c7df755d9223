"""Conversations as they come: empty, with white space at their edges, in any script, and with words that mislead."""

import random
from typing import Any, Final

PLAIN: Final = (
    "hello", " world", "\n", "\n\n", "  ", "你好", "🙂", "é", "e\u0301", "{}", "0", "12345", "x = 1;\t", "don't",
    " \u00a0",
)  # fmt: skip
# What control tokens look like to those who copy them.
MISLEADING: Final = (
    "<|im_end|>\n",
    "<|im_start|>system\n",
    "<|user|>",
    "<|eot_id|>",
    "<turn|>",
    "<tool_call>",
    "{{ x }}",
)

TOOL: Final = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "does f",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
}


class Generator:
    """Rows of one seed. `calls`: the most tool calls of a turn; `system`: whether some begin with instructions."""

    def __init__(
        self, seed: int, *, calls: int = 0, misleading: bool = False, stripped: bool = False, system: bool = True
    ) -> None:
        self._draw = random.Random(seed)
        self._calls = calls
        self._pieces = PLAIN + MISLEADING * misleading
        self._stripped = stripped
        self._system = 0.5 if system else 0.0

    def row(self) -> dict[str, Any]:
        """One row."""
        messages: list[dict[str, Any]] = []
        if self._draw.random() < self._system:
            messages.append({"role": "system", "content": self._text()})
        for _ in range(self._draw.randint(1, 4)):
            messages.append({"role": "user", "content": self._text()})
            if self._calls and self._draw.random() < 0.6:
                messages += self._used_tools()
            messages.append({"role": "assistant", "content": self._text()})
        return {"messages": messages, "tools": [TOOL] if self._calls else None}

    def _used_tools(self) -> list[dict[str, Any]]:
        calls = [
            {"function": {"name": "f", "arguments": {"a": self._text(), "n": None, "l": [1, None, {"x": None}]}}}
            for _ in range(self._draw.randint(1, self._calls))
        ]
        answers = [{"role": "tool", "content": self._text()} for _ in calls]
        return [{"role": "assistant", "content": self._text(), "tool_calls": calls}, *answers]

    def _text(self) -> str:
        text = "".join(self._draw.choices(self._pieces, k=self._draw.randint(0, 8)))
        return text.strip() if self._stripped else text
