"""Tokenizers built on the spot, with the control tokens and templates of the families under test."""

from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS: Final = [
    "the quick brown fox jumps over the lazy dog, and then it sleeps.",
    "What is 17 + 25? It is 42. Grüße, 你好, emoji 🙂 and\n\nnew lines\tand tabs.",
    'call {"name": "search", "arguments": {"query": "weather", "n": null}} <tool> </tool>',
    "one\n\n\n\ntwo",
] * 20

# Turns as ChatML writes them, earlier ones left alone.
CHATML: Final = """\
{%- if tools %}{{ '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content | trim) }}
{%- for call in message.tool_calls or [] %}{{ '<call>' + (call.function | tojson) + '</call>' }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

# A turn is closed by the head of the next one, and the last by nothing.
OPEN_ENDED: Final = """\
{{- '[gMASK]' }}
{%- for message in messages %}{{ '<|' + message.role + '|>\\n' + message.content }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"""

# What was thought is forgotten as soon as the user speaks again.
FORGETFUL: Final = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content and loop.last %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
{{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

# Forgetful too, but it says where the model speaks: of a turn with a tool call twice.
MARKED: Final = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}
{%- if message.reasoning_content and loop.last %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
{{- message.content }}
{%- endgeneration %}
{%- if message.tool_calls %}{% generation %}{{ message.tool_calls | tojson }}{% endgeneration %}{% endif %}
{{- '<|im_end|>\\n' }}
{%- else %}{{ message.content + '<|im_end|>\\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

SPECIAL: Final = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>",
    "<|observation|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
    "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>",
    "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
)  # fmt: skip


def build_tokenizer(
    directory: Path, template: str | None, *, eos: str = "<|im_end|>", special: tuple[str, ...] = SPECIAL, **config: Any
) -> Path:
    """A byte-level BPE tokenizer as `transformers` loads it."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos, **config)
    if template is not None:
        fast.chat_template = template
    fast.save_pretrained(directory)
    return directory
