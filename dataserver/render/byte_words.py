"""What tokens of byte-level tokenizers say, as bytes: their texts come back by looking each token up.

The `tokenizers` package decodes the same with more steps, which takes ten times as long.
"""

from typing import Any, Final

# Bytes that print stand for themselves in the vocabulary, the others for characters from 256 on, in their order.
_PRINTED: Final = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_BYTES: Final = {chr(byte): byte for byte in _PRINTED} | {
    chr(0x100 + place): byte for place, byte in enumerate(byte for byte in range(0x100) if byte not in _PRINTED)
}


class ByteWords(dict[int, bytes]):
    """The bytes of each token of `backend`, a `tokenizers.Tokenizer`, found when they are first asked for."""

    def __init__(self, backend: Any) -> None:  # noqa: ANN401 - it has no types
        super().__init__()
        self._backend = backend

    def __missing__(self, token: int) -> bytes:
        said: str = self._backend.id_to_token(token) or ""
        # A control token is written as it is, unless it looks like bytes to the decoder too.
        known = all(character in _BYTES for character in said)
        word = self[token] = bytes(_BYTES[character] for character in said) if known else said.encode()
        return word


def byte_words(backend: Any) -> ByteWords | None:  # noqa: ANN401
    """The words of a `tokenizers.Tokenizer`; None where it is of another kind."""
    return ByteWords(backend) if type(backend.decoder).__name__ == "ByteLevel" else None
