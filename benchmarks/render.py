"""Conversations to samples on one core, beside `datasets.map` with the same tokenizer and template in the same run.

    datasets.map       `apply_chat_template` on every row: tokens alone, no mask, nothing checked
    render, template   the same template, with the mask, checked turn by turn
    render, qwen3      the family's renderer, with the mask

Each reads the same JSON Lines and writes Arrow. Rows a second; the runs are interleaved, and what is loaded once is
not counted.
"""

import json
import pydoc_data.topics
import random
import tempfile
import time
from pathlib import Path

import datasets
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from benchmarks.report import Spread, report
from dataserver.render.part import render_part
from dataserver.render.rows import chunks_of, find_input
from dataserver.render.tokenizer import open_renderer
from dataserver.render_options import RenderOptions

ROWS, RUNS, SEED = 3000, 3, 5
CONTROL = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>",
    "<tool_response>", "</tool_response>",
)  # fmt: skip
TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def main():
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        paragraphs = [text for topic in pydoc_data.topics.topics.values() for text in topic.split("\n\n") if text]
        tokenizer = build_tokenizer(folder / "tokenizer", paragraphs)
        write_conversations(folder / "chats.jsonl", paragraphs)
        options = {
            family: RenderOptions(tokenizer=folder / "tokenizer", family=family) for family in ("template", "qwen3")
        }
        renderers = {family: open_renderer(chosen) for family, chosen in options.items()}
        ways = {
            "datasets.map": lambda run: map_with_datasets(folder, tokenizer, run),
            "render, template": lambda run: render(folder, options["template"], renderers["template"], run),
            "render, qwen3": lambda run: render(folder, options["qwen3"], renderers["qwen3"], run),
        }
        seconds = {name: [] for name in ways}
        for run in range(RUNS):
            for name, way in ways.items():
                begun = time.perf_counter()
                way(run)
                seconds[name].append(time.perf_counter() - begun)
        rates = {name: Spread.of([ROWS / taken for taken in values]) for name, values in seconds.items()}
        rows = [
            {"way": name, "rows/s": rate, "/ datasets.map": rate.median / rates["datasets.map"].median}
            for name, rate in rates.items()
        ]
    report("render", "Conversations to samples, one process", rows, ["rows/s, median (range)"])


def build_tokenizer(directory, paragraphs):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        paragraphs, trainers.BpeTrainer(vocab_size=8000, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in CONTROL])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=CONTROL[1])
    fast.chat_template = TEMPLATE
    fast.save_pretrained(directory)
    return fast


def write_conversations(path, paragraphs):
    draw = random.Random(SEED)
    with path.open("w") as file:
        for _ in range(ROWS):
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
    out = folder / f"{options.family}-{run}"
    out.mkdir()
    source = find_input(folder / "chats.jsonl")
    for chunk in chunks_of(source):
        render_part(source, chunk, renderer=renderer, options=options, directory=out)


if __name__ == "__main__":
    main()
