"""Tiny models with random weights, as Hugging Face lays them out, with a tokenizer of characters."""

import string
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.qwen3 import Qwen3Config, Qwen3ForCausalLM

from orchestrator.engines.interface import Completion

TOLERANCE = 1e-4
CHAT_TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}:{{ m['content'] }}<unk>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"
)
BEGIN, UNKNOWN = "<s>", "<unk>"
# No multiple of what vLLM pads vocabularies to.
VOCABULARY = 301
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "bos_token_id": 0,
    # No token ends a sample: whatever the weights, it is as long as it may be.
    "eos_token_id": None,
    # So large that every weight tells, and so small that float32 itself errs by a few 1e-6: with 0.3 it is 5e-5, and
    # two workers, who add up in another order, err by 3e-4.
    "initializer_range": 0.1,
}


@dataclass(frozen=True)
class TinyModel:
    """`module` is what a trainer holds; `directory` is what an engine was started with."""

    module: PreTrainedModel
    directory: Path

    def weights(self) -> dict[str, torch.Tensor]:
        """What is sent: a tied pair under its first name alone."""
        return {name: value.detach().clone() for name, value in self.module.named_parameters()}

    def next_version(self, seed: int) -> dict[str, torch.Tensor]:
        """Takes a step that changes every weight, and returns what is to be sent."""
        torch.manual_seed(seed)
        with torch.no_grad():
            # Enough to change every answer, and so little that weights, and errors with them, do not grow test by test.
            for value in self.module.parameters():
                value.add_(torch.randn_like(value) * 0.03)
        return self.weights()

    def logprobs(self, prompt: list[int], tokens: list[int]) -> torch.Tensor:
        """Of each of `tokens` after `prompt`, in float32."""
        ids = torch.tensor([prompt + tokens])
        with torch.no_grad():
            logits = self.module(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
        return logits[len(prompt) - 1 : -1].gather(1, ids[0, len(prompt) :, None])[:, 0]


def tiny_qwen3(directory: Path, *, tied: bool) -> TinyModel:
    torch.manual_seed(1)
    return _saved(Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=tied)), directory)


def tiny_llama(directory: Path, *, tied: bool) -> TinyModel:
    torch.manual_seed(2)
    return _saved(LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=tied)), directory)


def _saved(module: PreTrainedModel, directory: Path) -> TinyModel:
    module.eval().save_pretrained(directory)
    _tokenizer().save_pretrained(directory)
    return TinyModel(module, directory)


def _tokenizer() -> PreTrainedTokenizerFast:
    letters = {letter: place for place, letter in enumerate(string.printable, start=2)}
    rest = {f"<{place}>": place for place in range(2 + len(letters), VOCABULARY)}
    inner = Tokenizer(models.WordLevel({BEGIN: 0, UNKNOWN: 1, **letters, **rest}, unk_token=UNKNOWN))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    inner.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token=BEGIN,
        unk_token=UNKNOWN,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def assert_computes_as(model: TinyModel, prompt: list[int], completion: Completion) -> None:
    """Engines and trainer compute the same in float32, by other kernels."""
    wanted = model.logprobs(prompt, list(completion.token_ids))
    assert completion.logprobs is not None
    torch.testing.assert_close(torch.tensor(completion.logprobs), wanted, atol=TOLERANCE, rtol=0)
