"""Text to tokens that know their places in it.

Called directly on the `tokenizers` package: the wrapper that `transformers` has around it takes as long again.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataserver.render.chat_template import Span

# A `tokenizers.Tokenizer`, and what it makes of a text; neither has types.
Backend: TypeAlias = Any
Encoding: TypeAlias = Any


class Tokens:
    """The tokens of `text`. Control tokens in it are what the tokenizer makes of them."""

    def __init__(self, backend: Backend, text: str) -> None:
        self._text = text
        self._encoding: Encoding = backend.encode(text, add_special_tokens=False)
        self.ids: NDArray[np.int32] = np.array(self._encoding.ids, dtype=np.int32)

    def within(self, span: Span) -> tuple[int, int, int]:
        """The tokens that lie within `span`, first and the one after the last; and how many lie across its borders.

        Nothing lies within a span of no characters: then both are the first token behind it.
        """
        first, count = self._at(range(span.begin, len(self._text))), len(self.ids)
        begin = first
        while begin < count and self._place(begin)[0] < span.begin:
            begin += 1
        if span.begin == span.end:
            return begin, begin, 0
        end = max(first, self._at(range(span.end - 1, span.begin - 1, -1), otherwise=first))
        while end < count and self._place(end)[1] <= span.end:
            end += 1
        touching = end
        while touching < count and self._place(touching)[0] < span.end:
            touching += 1
        end = max(begin, end)
        return begin, end, begin - first + max(0, touching - end)

    def _at(self, characters: range, otherwise: int | None = None) -> int:
        """The first token that holds the first of `characters` that is held at all; else the one after the last."""
        held = (token for at in characters if (token := self._encoding.char_to_token(at)) is not None)
        return next(held, len(self.ids) if otherwise is None else otherwise)

    def _place(self, token: int) -> tuple[int, int]:
        place: tuple[int, int] = self._encoding.token_to_chars(token)
        return place
