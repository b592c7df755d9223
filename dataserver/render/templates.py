"""Rendering by a tokenizer's own chat template, for models that no family renderer knows.

    whole conversation ──template──> text ──one tokenization──> tokens with their places in the text
    messages up to i, with the opening of the next turn ──> where turn i begins
    messages up to i and turn i                         ──> where it ends

Both must be beginnings of the whole text, to the letter; a template that rewrites what came before is refused with
the message at which it does. A body's place within its turn is found by rendering the turn once more with another
body, and not by searching for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dataserver.render.conversation import Conversation, Message, RowError
from dataserver.render.families import Tokenizer
from dataserver.render.sample import Sample, selected_messages
from dataserver.render_options import RenderOptions

# Stands in for a body; no template strips, escapes or looks for a private-use character.
_STAND_IN: Final = "\ue123"


@dataclass(frozen=True, slots=True)
class _Span:
    """Characters `begin` up to `end` of the whole text."""

    begin: int
    end: int


class TemplateRenderer:
    """See `sample.Renderer`. `tokenizer`: a fast tokenizer of `transformers` with a chat template."""

    name = "template"

    def __init__(self, tokenizer: Tokenizer, options: RenderOptions, stop_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._options = options
        self._stop_ids = stop_ids

    def render(self, conversation: Conversation) -> Sample:
        """See `sample.Renderer`."""
        messages, tools = list(conversation.messages), list(conversation.tools)
        text = self._text(messages, tools)
        _check_parts(messages, text)
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids = list(encoded["input_ids"])
        offsets = np.array(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2)
        mask = np.zeros(len(ids), dtype=np.bool_)
        joined = 0
        for index, chosen in enumerate(selected_messages(conversation, self._options)):
            if not chosen:
                continue
            is_turn = messages[index]["role"] == "assistant"
            span = (self._turn if is_turn else self._body)(text, messages, tools, index)
            begin, end, across = _tokens_of(offsets, span)
            joined += across
            mask[begin : self._closed(ids, begin, end) if is_turn else end] = True
        return Sample(input_ids=ids, loss_mask=mask.tolist(), joined=joined)

    def _text(self, messages: Sequence[Message], tools: list[dict[str, Any]], *, opened: bool = False) -> str:
        """The template's text; `opened`: with the opening of an assistant turn behind it."""
        from jinja2 import TemplateError  # noqa: PLC0415

        try:
            text: str = self._tokenizer.apply_chat_template(
                list(messages), tools=tools or None, tokenize=False, add_generation_prompt=opened
            )
        except (TemplateError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise RowError(f"the chat template refuses it ({type(error).__name__}: {error})") from error
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RowError(f"it holds half of a surrogate pair, which is no text ({error})") from error
        return text

    def _turn(self, text: str, messages: Sequence[Message], tools: list[dict[str, Any]], index: int) -> _Span:
        """What an assistant turn adds behind its opening, up to where the next message begins."""
        opening = self._text(messages[:index], tools, opened=True) if index else ""
        closed = self._text(messages[: index + 1], tools)
        for part, what in ((opening, "the opening of its turn"), (closed, "the conversation up to it")):
            if not text.startswith(part):
                raise _unstable(index, what, text, part)
        if index == 0:
            raise RowError(
                "messages[0] is an assistant turn, whose beginning no template tells: put a message before it"
            )
        return _Span(len(opening), len(closed))

    def _closed(self, ids: list[int], begin: int, end: int) -> int:
        """Where a turn's targets end: behind the stop token that closes it, be it the head of what follows."""
        stops = [at for at in range(begin, end) if ids[at] in self._stop_ids]
        if stops:
            return stops[-1] + 1
        return end + 1 if end < len(ids) and ids[end] in self._stop_ids else end

    def _body(self, text: str, messages: Sequence[Message], tools: list[dict[str, Any]], index: int) -> _Span:
        """Where the body of a message that is no assistant turn lies."""
        content = messages[index]["content"]
        if not isinstance(content, str):
            raise RowError(
                f"messages[{index}].content is a list of parts, whose places the chat template does not tell"
            )
        closed = self._text(messages[: index + 1], tools)
        other = self._text([*messages[:index], {**messages[index], "content": _STAND_IN}], tools)
        head, found, tail = other.partition(_STAND_IN)
        if not found or _STAND_IN in tail:
            raise RowError(f"the chat template does not render the content of messages[{index}] once")
        if not text.startswith(closed):
            raise _unstable(index, "the conversation up to it", text, closed)
        if not (closed.startswith(head) and closed.endswith(tail) and len(closed) >= len(head) + len(tail)):
            raise RowError(f"the chat template puts other words around messages[{index}] depending on its content")
        return _Span(len(head), len(closed) - len(tail))


def _tokens_of(offsets: NDArray[np.int64], span: _Span) -> tuple[int, int, int]:
    """The tokens within `span`, first and the one after the last, and how many lie across its borders."""
    begin = int(np.searchsorted(offsets[:, 0], span.begin, side="left"))
    end = int(np.searchsorted(offsets[:, 1], span.end, side="right"))
    touching = int(np.searchsorted(offsets[:, 0], span.end, side="left"))
    first = int(np.searchsorted(offsets[:, 1], span.begin, side="right"))
    return begin, max(begin, end), (begin - first) + max(0, touching - max(begin, end))


def _check_parts(messages: Sequence[Message], text: str) -> None:
    """A template that knows no lists of parts writes them as Python does, brackets and quotes and all."""
    for index, message in enumerate(messages):
        if isinstance(message["content"], list) and str(message["content"]) in text:
            raise RowError(
                f"messages[{index}].content is a list of parts, which the chat template writes out as a list: "
                "give the content as text"
            )


def _unstable(index: int, what: str, text: str, part: str) -> RowError:
    at = next((i for i, (a, b) in enumerate(zip(text, part, strict=False)) if a != b), min(len(text), len(part)))
    return RowError(
        f"the chat template is not stable: {what}, messages[{index}], is rendered otherwise when more follows (from "
        f"character {at} on: {part[at : at + 40]!r} became {text[at : at + 40]!r}), so no mask would be right. Use the "
        "family renderer of this model, train_on = last, or a template that leaves earlier turns alone"
    )
