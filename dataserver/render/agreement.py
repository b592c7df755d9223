"""A family's rendering held to the words of the tokenizer's own chat template, row by row.

The two are written by different people, and where they part (a line break between two tool calls, reasoning that stands
in the content) nothing but this comparison tells.
"""

from collections.abc import Sequence
from typing import Any, Final

from dataserver.render.byte_words import byte_words
from dataserver.render.chat_template import ChatTemplate
from dataserver.render.conversation import Json, Message, RowError
from dataserver.render.lean_tokenizer import Tokenizer

_PROBE: Final = [{"role": "user", "content": "a é"}, {"role": "assistant", "content": "b 你\nc"}]
_SHOWN: Final = 40


class OwnTemplate:
    """The chat template of `tokenizer`, a fast one that has one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._template = ChatTemplate(tokenizer)
        self._backend = tokenizer.backend_tokenizer
        self._words = byte_words(self._backend)

    def parting(self, renderer: Any) -> str | None:  # noqa: ANN401 - a renderer of the package
        """Where it does not write a plain conversation as the family does; None where it does, or cannot."""
        return self.difference(renderer.render(_PROBE).token_ids, _PROBE, ())

    def difference(self, input_ids: Sequence[int], messages: Sequence[Message], tools: Sequence[Json]) -> str | None:
        """Where the words of `input_ids` are not the template's; None where they are, or where it has none to give."""
        try:
            wanted = self._template.text(self._template.prepared(messages), tools)
        except RowError:
            return None
        if self._words is not None and b"".join(map(self._words.__getitem__, input_ids)) == wanted.encode():
            return None
        found: str = self._backend.decode(input_ids, skip_special_tokens=False)
        if found == wanted or found == self._normalized(wanted):
            return None
        shorter = min(len(found), len(wanted))
        at = next((i for i in range(shorter) if found[i] != wanted[i]), shorter)
        return f"from character {at} on: {found[at : at + _SHOWN]!r} instead of {wanted[at : at + _SHOWN]!r}"

    def _normalized(self, text: str) -> str:
        """As the tokenizer reads it: composed, for instance."""
        normalizer = self._backend.normalizer
        normalized: str = text if normalizer is None else normalizer.normalize_str(text)
        return normalized
