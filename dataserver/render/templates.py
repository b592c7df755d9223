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
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids = list(encoded["input_ids"])
        offsets = np.array(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2)
        mask = np.zeros(len(ids), dtype=np.bool_)
        for index, chosen in enumerate(selected_messages(conversation, self._options)):
            if not chosen:
                continue
            if messages[index]["role"] == "assistant":
                self._mark_turn(mask, ids, offsets, self._turn(text, messages, tools, index))
            else:
                span = self._body(text, messages, tools, index)
                begin, end = _tokens_of(offsets, span, index)
                mask[begin:end] = True
        return Sample(input_ids=ids, loss_mask=mask.tolist())

    def _text(self, messages: Sequence[Message], tools: list[dict[str, Any]], *, opened: bool = False) -> str:
        """The template's text; `opened`: with the opening of an assistant turn behind it."""
        from jinja2 import TemplateError  # noqa: PLC0415

        try:
            text: str = self._tokenizer.apply_chat_template(
                list(messages), tools=tools or None, tokenize=False, add_generation_prompt=opened
            )
        except (TemplateError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise RowError(f"the chat template refuses it ({type(error).__name__}: {error})") from error
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

    def _mark_turn(self, mask: NDArray[np.bool_], ids: list[int], offsets: NDArray[np.int64], turn: _Span) -> None:
        """Targets: the turn up to and with the stop token that closes it, be it the head of what follows."""
        begin, end = _tokens_of(offsets, turn, None)
        stops = [at for at in range(begin, end) if ids[at] in self._stop_ids]
        if stops:
            end = stops[-1] + 1
        elif end < len(ids) and ids[end] in self._stop_ids:
            end += 1
        mask[begin:end] = True

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


def _tokens_of(offsets: NDArray[np.int64], span: _Span, index: int | None) -> tuple[int, int]:
    """The tokens whose characters are those of `span`; raises where a token lies across its border."""
    begin = int(np.searchsorted(offsets[:, 1], span.begin, side="right"))
    end = int(np.searchsorted(offsets[:, 0], span.end, side="left"))
    across = [at for at in (begin, end - 1) if begin < end and not _inside(offsets[at], span)]
    if across:
        where = "a turn" if index is None else f"the body of messages[{index}]"
        raise RowError(
            f"the tokenizer joins the border of {where} with its neighbour into one token (characters "
            f"{offsets[across[0]].tolist()}, the border {span.begin}:{span.end}), so no mask is right"
        )
    return begin, end


def _inside(offset: NDArray[np.int64], span: _Span) -> bool:
    return bool(span.begin <= offset[0] and offset[1] <= span.end)


def _unstable(index: int, what: str, text: str, part: str) -> RowError:
    at = next((i for i, (a, b) in enumerate(zip(text, part, strict=False)) if a != b), min(len(text), len(part)))
    return RowError(
        f"the chat template is not stable: {what}, messages[{index}], is rendered otherwise when more follows (from "
        f"character {at} on: {part[at : at + 40]!r} became {text[at : at + 40]!r}), so no mask would be right. Use the "
        "family renderer of this model, train_on = last, or a template that leaves earlier turns alone"
    )
