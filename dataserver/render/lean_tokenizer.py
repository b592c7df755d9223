"""A tokenizer of `transformers` without what it costs."""

from typing import Any, Final, TypeAlias

# A tokenizer of `transformers`, whose classes have no types.
Tokenizer: TypeAlias = Any

# Texts up to so many characters, as a template's own words are, are tokenized once.
_SHORT_CHARACTERS: Final = 64
_SHORT_TEXTS: Final = 4096


class LeanTokenizer:
    """What the package asks of a tokenizer, by the `tokenizers` package itself.

    The package tokenizes every piece of a turn for itself, and the wrapper that `transformers` has around it takes
    longer than that. Whatever else is asked for is the wrapper's.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._short: dict[str, tuple[list[int], list[tuple[int, int]]]] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the tokenizer has
        return getattr(self._tokenizer, name)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`."""
        return self._encoded(text, add_special_tokens=add_special_tokens)[0]

    def __call__(
        self, text: str, *, add_special_tokens: bool = True, return_offsets_mapping: bool = False
    ) -> dict[str, Any]:
        """Ids and, if asked for, their places."""
        ids, offsets = self._encoded(text, add_special_tokens=add_special_tokens)
        return {"input_ids": ids, **({"offset_mapping": offsets} if return_offsets_mapping else {})}

    def _encoded(self, text: str, *, add_special_tokens: bool) -> tuple[list[int], list[tuple[int, int]]]:
        is_short = len(text) <= _SHORT_CHARACTERS and not add_special_tokens
        if is_short and (known := self._short.get(text)) is not None:
            return known[0].copy(), known[1].copy()
        encoding = self._backend.encode(text, add_special_tokens=add_special_tokens)
        found = encoding.ids, encoding.offsets
        if is_short and len(self._short) < _SHORT_TEXTS:
            self._short[text] = found[0].copy(), found[1].copy()
        return found
