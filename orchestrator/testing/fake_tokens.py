"""What a fake engine says: letters that follow from the weights' checksum, the prompt, the sample and the place."""

from collections.abc import Callable, Sequence

import xxhash

# What an engine was started with.
FIRST_CHECKSUM = "0" * 32
# Gives the text of an answer to (prompt, label of the weights); tokens are its characters.
Reply = Callable[[str, str], str]


def encode(text: str) -> list[int]:
    """A token per character."""
    return [ord(character) for character in text]


def decode(token_ids: Sequence[int]) -> str:
    """The other way."""
    return "".join(map(chr, token_ids))


def render(messages: Sequence[dict[str, str]]) -> str:
    """The fake's chat template."""
    return "".join(f"<{each['role']}>{each['content']}</{each['role']}>" for each in messages) + "<assistant>"


def token_at(checksum: str, prompt: Sequence[int], sample: int, place: int) -> int:
    """The token that weights with this checksum put there: one of `a` to `z`."""
    return ord("a") + xxhash.xxh3_64_intdigest(f"{checksum}|{list(prompt)}|{sample}|{place}".encode()) % 26


def expected_tokens(checksum: str, prompt: Sequence[int], count: int, sample: int = 0) -> list[int]:
    """What a fake engine generates when one version makes all `count` tokens."""
    return [token_at(checksum, prompt, sample, place) for place in range(count)]
