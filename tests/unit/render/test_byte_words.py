"""Tokens looked up one by one say what the tokenizer's own decoder says of them together."""

import random

import pytest
from renderlab.vocabularies import FAMILIES, family_tokenizer

from dataserver.render.byte_words import byte_words


@pytest.mark.parametrize("family", [FAMILIES[0], FAMILIES[-2]], ids=lambda family: family.name)
def test_bytes_of_tokens_are_the_decoded_text(family):
    backend = family_tokenizer(family).backend_tokenizer
    words, draw = byte_words(backend), random.Random(0)
    size = backend.get_vocab_size(with_added_tokens=True)
    for _ in range(300):
        ids = draw.choices(range(size), k=draw.randint(0, 30))
        said = b"".join(words[token] for token in ids)
        assert said.decode(errors="replace") == backend.decode(ids, skip_special_tokens=False)
    for text in ("Grüße, 你好 🙂\n\n\t e\u0301", "<|im_start|>a<|im_end|>", "\x00\x7f\u00a0\u00ad"):
        ids = backend.encode(text, add_special_tokens=False).ids
        assert b"".join(words[token] for token in ids).decode() == text


def test_a_tokenizer_of_another_kind_has_none():
    from tokenizers import Tokenizer, decoders, models

    backend = Tokenizer(models.BPE())
    assert byte_words(backend) is None
    backend.decoder = decoders.Metaspace()
    assert byte_words(backend) is None
