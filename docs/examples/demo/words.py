"""Words to be said backwards, letter by letter: a store to learn from, and words kept back to be asked for.

    pydoc_data.topics -> words ─┬─> store/part-0.arrow    "river>" is given, "revir" and the end are to be learnt
                                └─> held-out.jsonl        a prompt and its reference a line
                        letters ──> model/                the configuration of a tiny model, and its tokenizer

The model is never told what a letter is, and never sees a word that is asked for.
"""

import json
import random
import re
from pathlib import Path
from pydoc_data.topics import topics
from string import ascii_lowercase

import pyarrow as pa
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

SEPARATOR = ">"
END = "<end>"
VOCABULARY = [*ascii_lowercase, SEPARATOR, END]

LENGTHS = range(3, 8)
"""Letters of a word."""
HELD_OUT = 64
MAX_LENGTH = 2 * max(LENGTHS) + 2
"""Tokens of the longest sample: a word, the separator, the word backwards, the end."""

MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": VOCABULARY.index(END),
    "torch_dtype": "float32",
}

SCHEMA = pa.schema([pa.field("input_ids", pa.list_(pa.int32())), pa.field("loss_mask", pa.list_(pa.int8()))])


def words() -> tuple[list[str], list[str]]:
    """Words to learn from, and words to ask for; the same ones each time."""
    found = {word for text in topics.values() for word in re.findall(r"\b[a-z]+\b", text) if len(word) in LENGTHS}
    shuffled = random.Random(0).sample(sorted(found), len(found))  # noqa: S311 - the same draw each time
    return shuffled[HELD_OUT:], shuffled[:HELD_OUT]


def row(word: str) -> dict[str, list[int]]:
    """A sample: the loss is on the answer and its end."""
    given = [VOCABULARY.index(letter) for letter in word + SEPARATOR]
    wanted = [VOCABULARY.index(letter) for letter in word[::-1]] + [VOCABULARY.index(END)]
    return {"input_ids": given + wanted, "loss_mask": [0] * len(given) + [1] * len(wanted)}


def overlap(answer: str, prompt: dict[str, str]) -> float:
    """The reward: the part of the reference's letters that the answer has in their places."""
    reference = prompt["reference"]
    right = sum(mine == theirs for mine, theirs in zip(answer, reference, strict=False))
    return right / max(len(answer), len(reference))


def write_model(directory: Path) -> None:
    """A model without weights, and a tokenizer that takes a letter for a token."""
    directory.mkdir()
    tokenizer = Tokenizer(models.WordLevel({token: number for number, token in enumerate(VOCABULARY)}, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "model_max_length": 64}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    (directory / "config.json").write_text(json.dumps(MODEL, indent=2))


def write_words(store: Path, held_out: Path) -> int:
    """Write the store and the prompts; the number of words to learn from."""
    learn, ask = words()
    store.mkdir()
    with pa.OSFile(str(store / "part-0.arrow"), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([row(word) for word in learn], SCHEMA))
    lines = ({"prompt": word + SEPARATOR, "reference": word[::-1]} for word in ask)
    held_out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return len(learn)
