"""The smallest task that a model has to learn something for: `python …/conversations/reverse_text.py reversed.jsonl`.

Each row gives some words (of help texts that come with Python) and asks for them backwards, letter by letter. Prompt
and completion are lists of messages.

    dataserver store render reversed.jsonl --tokenizer DIR --out stores/reversed
"""

import json
import pydoc_data.topics
import random
import sys
from pathlib import Path

ROWS = 2000
WORDS = (4, 24)
TASK = "Reverse the text letter by letter. Put the answer between <reversed_text> and </reversed_text>."


def main(path: Path, rows: int = ROWS) -> None:
    """Write `rows` tasks as JSON Lines, each a prompt and a completion."""
    draw = random.Random(0)  # noqa: S311 - nothing is to be kept secret
    words = " ".join(pydoc_data.topics.topics.values()).split()
    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            count = draw.randint(*WORDS)
            at = draw.randrange(len(words) - count)
            text = " ".join(words[at : at + count])
            answer = f"<reversed_text>{text[::-1]}</reversed_text>"
            row = {
                "prompt": [{"role": "system", "content": TASK}, {"role": "user", "content": text}],
                "completion": [{"role": "assistant", "content": answer}],
            }
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
