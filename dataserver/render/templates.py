"""Rendering by a tokenizer's own chat template, for models that no family renderer knows.

    whole conversation ──template──> text ──one tokenization──> tokens with their places in the text
    a template with `{% generation %}`  ──> what it marks is what the model says
    any other: messages up to i, with the opening of the next turn ──> where turn i begins
               messages up to i and turn i                         ──> where it ends

Without marks both must be beginnings of the whole text, to the letter; a template that rewrites what came before is
refused with the message at which it does. A body's place within its turn is found by rendering the turn once more with
another body, and not by searching for it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from dataserver.render.chat_template import ChatTemplate, Span
from dataserver.render.conversation import Conversation, Json, Message, RowError
from dataserver.render.lean_tokenizer import Tokenizer
from dataserver.render.places import Tokens
from dataserver.render.sample import Sample, selected_messages
from dataserver.render_options import RenderOptions

# Stands in for a body; no template strips, escapes or looks for a private-use character.
_STAND_IN: Final = "\ue123"


class TemplateRenderer:
    """See `sample.Renderer`. `tokenizer`: a fast tokenizer of `transformers` with a chat template."""

    def __init__(self, tokenizer: Tokenizer, options: RenderOptions, stop_ids: frozenset[int]) -> None:
        self._template = ChatTemplate(tokenizer)
        self._backend = tokenizer.backend_tokenizer
        self._options = options
        self._stop_ids = stop_ids
        self.name = "generation" if self._template.marks_turns else "template"

    def render(self, conversation: Conversation) -> Sample:
        """See `sample.Renderer`."""
        messages, tools = self._template.prepared(conversation.messages), conversation.tools
        text, marks = self._whole(messages, tools)
        _check_parts(messages, text)
        tokens = Tokens(self._backend, text)
        mask = np.zeros(len(tokens.ids), dtype=np.bool_)
        joined = 0
        selected = selected_messages(conversation, self._options)
        for span, is_turn in self._spans(text, messages, tools, selected, marks):
            begin, end, across = tokens.within(span)
            joined += across
            mask[begin : self._closed(tokens, begin, end) if is_turn else end] = True
        return Sample(input_ids=tokens.ids, loss_mask=mask, joined=joined)

    def _whole(self, messages: Sequence[Message], tools: Sequence[Json]) -> tuple[str, list[Span]]:
        if self._template.marks_turns:
            return self._template.marked_text(messages, tools)
        return self._template.text(messages, tools), []

    def _spans(
        self, text: str, messages: Sequence[Message], tools: Sequence[Json], selected: Sequence[bool], marks: list[Span]
    ) -> Iterator[tuple[Span, bool]]:
        """Where the targets of the selected messages lie, and whether they are an assistant turn."""
        turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        chosen = [index for index in turns if selected[index]]
        # Fewer marks than turns, or which of them belong to a turn is not told: then they do not count.
        if chosen and (len(marks) == len(turns) or (len(marks) > len(turns) and chosen == turns)):
            yield from ((mark, True) for mark in (marks if chosen == turns else marks[-len(chosen) :]))
            chosen = []
        for index in chosen:
            yield self._turn(text, messages, tools, index), True
        for index, message in enumerate(messages):
            if selected[index] and message["role"] != "assistant":
                yield self._body(text, messages, tools, index), False

    def _turn(self, text: str, messages: Sequence[Message], tools: Sequence[Json], index: int) -> Span:
        """What an assistant turn adds behind its opening, up to where the next message begins."""
        opening = self._template.text(messages[:index], tools, opened=True) if index else ""
        closed = self._up_to(text, messages, tools, index)
        if not text.startswith(opening):
            raise _unstable(index, "the opening of its turn", text, opening)
        if index == 0:
            raise RowError(
                "messages[0] is an assistant turn, whose beginning no template tells: put a message before it"
            )
        return Span(len(opening), len(closed))

    def _up_to(self, text: str, messages: Sequence[Message], tools: Sequence[Json], index: int) -> str:
        """The text up to the end of a message, which is a beginning of the whole."""
        if index + 1 == len(messages):
            return text
        closed = self._template.text(messages[: index + 1], tools)
        if not text.startswith(closed):
            raise _unstable(index, "the conversation up to it", text, closed)
        return closed

    def _closed(self, tokens: Tokens, begin: int, end: int) -> int:
        """Where a turn's targets end: behind the stop token that closes it, be it the head of what follows."""
        ids = tokens.ids[begin : end + 1].tolist()
        within = end - begin
        last = next((at for at in range(min(within, len(ids)) - 1, -1, -1) if ids[at] in self._stop_ids), None)
        if last is not None:
            return begin + last + 1
        return end + 1 if len(ids) > within and ids[within] in self._stop_ids else end

    def _body(self, text: str, messages: Sequence[Message], tools: Sequence[Json], index: int) -> Span:
        """Where the body of a message that is no assistant turn lies."""
        content = messages[index]["content"]
        if not isinstance(content, str):
            raise RowError(
                f"messages[{index}].content is a list of parts, whose places the chat template does not tell"
            )
        closed = self._up_to(text, messages, tools, index)
        other = self._template.text([*messages[:index], {**messages[index], "content": _STAND_IN}], tools)
        head, found, tail = other.partition(_STAND_IN)
        if not found or _STAND_IN in tail:
            raise RowError(f"the chat template does not render the content of messages[{index}] once")
        if not (closed.startswith(head) and closed.endswith(tail) and len(closed) >= len(head) + len(tail)):
            raise RowError(f"the chat template puts other words around messages[{index}] depending on its content")
        return Span(len(head), len(closed) - len(tail))


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
        "family renderer of this model, a template that says where the model speaks by `{% generation %}`, "
        "train_on = last, or a template that leaves earlier turns alone"
    )
