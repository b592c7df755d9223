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
    longer than that. Whatever else is asked for is the wrapper's. `places`: whether tokens know where they stand, by
    which the package tells body from scaffolding; that takes as long again as tokenizing.
    """

    def __init__(self, tokenizer: Tokenizer, *, places: bool) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._places = places
        self._ids: dict[str, list[int]] = {}
        self._placed: dict[str, tuple[list[int], list[tuple[int, int]]]] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the tokenizer has
        return getattr(self._tokenizer, name)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`."""
        if (known := self._ids.get(text)) is not None and not add_special_tokens:
            return known.copy()
        # A batch of one, since only of batches can places be left out.
        [encoding] = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        if not add_special_tokens and _is_kept(text, self._ids):
            self._ids[text] = ids.copy()
        return ids

    def __call__(
        self, text: str, *, add_special_tokens: bool = True, return_offsets_mapping: bool = False
    ) -> dict[str, Any]:
        """Ids and, if asked for, their places; raises `NotImplementedError` where these are not to be had."""
        if not return_offsets_mapping:
            return {"input_ids": self.encode(text, add_special_tokens=add_special_tokens)}
        if not self._places:
            raise NotImplementedError
        ids, offsets = self._encoded(text, add_special_tokens=add_special_tokens)
        return {"input_ids": ids, "offset_mapping": offsets}

    def _encoded(self, text: str, *, add_special_tokens: bool) -> tuple[list[int], list[tuple[int, int]]]:
        if (known := self._placed.get(text)) is not None and not add_special_tokens:
            return known[0].copy(), known[1].copy()
        encoding = self._backend.encode(text, add_special_tokens=add_special_tokens)
        found = encoding.ids, encoding.offsets
        if not add_special_tokens and _is_kept(text, self._placed):
            self._placed[text] = found[0].copy(), found[1].copy()
        return found


def _is_kept(text: str, kept: dict[str, Any]) -> bool:
    return len(text) <= _SHORT_CHARACTERS and len(kept) < _SHORT_TEXTS
