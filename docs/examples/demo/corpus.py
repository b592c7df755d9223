"""A small real store out of text that every Python ships: paragraphs of its manual, to be said backwards.

    pydoc_data.topics -> paragraphs -> conversations -> BPE tokenizer -> store/part-0.arrow, part-1.arrow

Each conversation asks for a paragraph in reverse; the loss is on the answer only.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import pyarrow as pa
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 1024
END_OF_TURN = "<|im_end|>"
SPECIAL_TOKENS = ["<|im_start|>", END_OF_TURN]

# Characters. Below: headings; above: more than the model's context when doubled.
PARAGRAPH_LENGTHS = range(30, 600)

SCHEMA = pa.schema([pa.field("input_ids", pa.list_(pa.int32())), pa.field("loss_mask", pa.list_(pa.int8()))])
SHARDS = 2
ROWS_PER_BATCH = 128


def paragraphs() -> list[str]:
    """The manual's paragraphs, each once, in the order of their topics."""
    texts = (" ".join(text.split()) for name in sorted(topics) for text in re.split(r"\n\s*\n", topics[name]))
    return list(dict.fromkeys(text for text in texts if len(text) in PARAGRAPH_LENGTHS))


def turns(paragraph: str) -> tuple[str, str]:
    """What is given, and what is to be learnt."""
    given = f"<|im_start|>user\nSay backwards: {paragraph}{END_OF_TURN}\n<|im_start|>assistant\n"
    return given, f"{paragraph[::-1]}{END_OF_TURN}\n"


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """A byte-level BPE tokenizer that has seen the text in both directions."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL_TOKENS, show_progress=False)
    tokenizer.train_from_iterator((text for pair in map(turns, texts) for text in pair), trainer)
    return tokenizer


def write_shard(path: Path, tokenizer: Tokenizer, texts: list[str]) -> None:
    """One Arrow IPC file, one row a conversation."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for batch in batches(texts):
            writer.write_batch(pa.RecordBatch.from_pylist([row(tokenizer, text) for text in batch], SCHEMA))


def row(tokenizer: Tokenizer, paragraph: str) -> dict[str, list[int]]:
    """The conversation's tokens, and 1 where a token belongs to the answer."""
    given, wanted = (tokenizer.encode(text).ids for text in turns(paragraph))
    return {"input_ids": given + wanted, "loss_mask": [0] * len(given) + [1] * len(wanted)}


def batches(texts: list[str]) -> Iterator[list[str]]:
    """`texts` in pieces of one record batch."""
    for start in range(0, len(texts), ROWS_PER_BATCH):
        yield texts[start : start + ROWS_PER_BATCH]


def build_store(store: Path, tokenizer_file: Path) -> int:
    """Write tokenizer and store; return the number of rows."""
    texts = paragraphs()
    tokenizer = train_tokenizer(texts)
    tokenizer.save(str(tokenizer_file))
    store.mkdir(parents=True)
    share = -(-len(texts) // SHARDS)
    for shard in range(SHARDS):
        write_shard(store / f"part-{shard}.arrow", tokenizer, texts[shard * share : (shard + 1) * share])
    return len(texts)
