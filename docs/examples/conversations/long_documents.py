"""A set of long documents, made on the spot: `python docs/examples/conversations/long_documents.py documents.jsonl`.

Each row gives a document of up to some 100,000 characters (help texts that come with Python) and asks for the line
behind one of its lines, so that the answer has to be found far back.

    dataserver store render documents.jsonl --tokenizer DIR --max-length 131072 --out stores/documents
"""

import json
import pydoc_data.topics
import random
import sys
from pathlib import Path

ROWS = 200
LONGEST = 100_000


def document(draw: random.Random) -> list[str]:
    """The lines of help texts, one after another up to a length that is drawn."""
    topics = list(pydoc_data.topics.topics.values())
    draw.shuffle(topics)
    lines, left = [], draw.randint(LONGEST // 50, LONGEST)
    for line in "\n".join(topics).splitlines():
        left -= len(line)
        if left < 0:
            break
        if line.strip():
            lines.append(line.strip())
    return lines


def main(path: Path, rows: int = ROWS) -> None:
    """Write `rows` documents as JSON Lines, each a prompt and a completion."""
    draw = random.Random(0)  # noqa: S311 - nothing is to be kept secret
    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            lines = document(draw)
            at = draw.randrange(len(lines) - 1)
            prompt = "\n".join(lines) + f"\n\nWhich line stands behind this one?\n{lines[at]}"
            file.write(json.dumps({"prompt": prompt, "completion": lines[at + 1]}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
