"""A multi-turn set with tool calls, made on the spot: `python docs/examples/conversations/tool_calls.py calls.jsonl`.

Each row asks for sums, the assistant calls a calculator (at times twice at once) and says what came out. Arguments are
JSON text, as the services that record such conversations write them.

    dataserver store render calls.jsonl --tokenizer DIR --roles assistant,tool --out stores/calls
"""

import json
import random
import sys
from pathlib import Path

ROWS = 2000
TOOLS = [
    {
        "name": "add",
        "description": "Adds two whole numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "unit": {"type": ["string", "null"]}},
            "required": ["a", "b"],
        },
    }
]


def turn(draw: random.Random) -> list[dict]:
    """A question, one or two calls, what they return, and the answer."""
    sums = [(draw.randint(0, 999), draw.randint(0, 999)) for _ in range(draw.randint(1, 2))]
    calls = [{"function": {"name": "add", "arguments": json.dumps({"a": a, "b": b, "unit": None})}} for a, b in sums]
    return [
        {"role": "user", "content": "What is " + " and ".join(f"{a} + {b}" for a, b in sums) + "?"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        *({"role": "tool", "content": json.dumps({"sum": a + b})} for a, b in sums),
        {"role": "assistant", "content": "It is " + " and ".join(str(a + b) for a, b in sums) + "."},
    ]


def main(path: Path, rows: int = ROWS) -> None:
    """Write `rows` conversations as JSON Lines."""
    draw = random.Random(0)  # noqa: S311 - nothing is to be kept secret
    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            messages = [message for _ in range(draw.randint(1, 3)) for message in turn(draw)]
            file.write(json.dumps({"messages": messages, "tools": json.dumps(TOOLS)}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
