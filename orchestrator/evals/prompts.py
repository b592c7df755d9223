"""Prompts of an eval: lines of a file, or rows of a store."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from dataserver.client import DataClient
from dataserver.errors import InvalidConfigError
from orchestrator.evals.config import EvalConfig, PromptsConfig

# Rows of one answer of the data server.
_ROWS_AT_A_TIME = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What is asked. `question`: a text, chat messages (`role`, `content`), or token ids.

    `reference`: the right answer, a text, or token ids where the question is; None without. `line`: where it comes
    from, for scorers that want more. `place` names it in messages.
    """

    question: str | tuple[Mapping[str, str], ...] | tuple[int, ...]
    reference: str | tuple[int, ...] | None
    line: Mapping[str, Any]
    place: str


def load_prompts(config: EvalConfig, client: DataClient | None = None) -> tuple[Prompt, ...]:
    """The prompts of `[evals.prompts]`, checked against the scorer; `client` is needed for those of a store.

    Raises `InvalidConfigError` naming file, line and what to do.
    """
    source = config.prompts
    if source is None:
        raise InvalidConfigError(f"eval {config.name!r} has no prompts of its own")
    if source.file is not None:
        found = tuple(islice(_lines(source.file), source.limit))
    elif client is not None:
        found = tuple(islice(_rows(source, client), source.limit))
    else:
        raise InvalidConfigError(f"eval {config.name!r}: prompts of store {source.store!r} need a data server")
    if not found:
        raise InvalidConfigError(f"eval {config.name!r}: {source.file or source.store} holds no prompt")
    return found


def _lines(path: Path) -> Iterator[Prompt]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _prompt(line, f"{path}, line {number}")
    except OSError as error:
        raise InvalidConfigError(f"cannot read the prompts {path}: {error.strerror}") from error


def _prompt(text: bytes, place: str) -> Prompt:
    try:
        line = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidConfigError(f"{place}: no JSON: {error}") from error
    if not isinstance(line, dict) or ("prompt" in line) == ("messages" in line):
        raise InvalidConfigError(f"{place}: give an object with either 'prompt' or 'messages'")
    question = _text(line["prompt"], place) if "prompt" in line else _messages(line["messages"], place)
    return Prompt(question=question, reference=_reference(line.get("reference"), place), line=line, place=place)


def _text(value: object, place: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidConfigError(f"{place}: 'prompt' is {value!r:.80}: give a text that is not empty")
    return value


def _messages(value: object, place: str) -> tuple[Mapping[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise InvalidConfigError(f"{place}: 'messages' is {value!r:.80}: give a list of messages")
    for message in value:
        texts = isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))
        if not texts:
            raise InvalidConfigError(f"{place}: message {message!r:.80}: give 'role' and 'content', both texts")
    return tuple({"role": message["role"], "content": message["content"]} for message in value)


def _reference(value: object, place: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise InvalidConfigError(f"{place}: 'reference' is {value!r:.80}: give a text or a number")


def _rows(source: PromptsConfig, client: DataClient) -> Iterator[Prompt]:
    store = source.store or ""
    rows = client.get_store(store).rows
    for begin in range(0, rows, _ROWS_AT_A_TIME):
        for row in client.list_samples(store, begin, min(begin + _ROWS_AT_A_TIME, rows)):
            if row.kept and any(row.loss_mask):
                place = f"store {store}, row {row.row}"
                question, reference = split_at_first_target(row.input_ids, row.loss_mask)
                if question:
                    yield Prompt(question=question, reference=reference, line={"row": row.row}, place=place)


def split_at_first_target(
    input_ids: Sequence[int], loss_mask: Sequence[bool]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens before the first target, and the first targets without a gap: what a model should say next."""
    first = list(loss_mask).index(True)
    end = next((place for place in range(first, len(loss_mask)) if not loss_mask[place]), len(loss_mask))
    return tuple(input_ids[:first]), tuple(input_ids[first:end])
