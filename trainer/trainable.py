"""What a Hugging Face model must be like, to be trained here: anything else would be wrong in silence."""

from collections.abc import Mapping
from dataclasses import fields as fields_of
from difflib import get_close_matches
from typing import Any, Final

from transformers import PretrainedConfig, PreTrainedModel

from trainer.config import Attention
from trainer.errors import ModelError

# As a share of equal letters; bos_token_id is no misspelt eos_token_id, which is 0.917.
_NEARLY: Final = 0.92


def check_fields(fields: Mapping[str, Any], hf_config: PretrainedConfig) -> None:
    """Raise `ModelError` for a field that is nearly called as another.

    Transformers takes any field: a misspelt one changes nothing, and the one that was meant keeps its default.
    """
    known = {field.name for field in fields_of(hf_config)} | set(hf_config.attribute_map)
    default = type(hf_config)()
    for name in fields.keys() - known:
        meant = get_close_matches(name, known, n=1, cutoff=_NEARLY)
        if meant and not hasattr(default, name):
            raise ModelError(f"model.config: {hf_config.model_type} has no field {name!r}; is it {meant[0]!r}?")


def check_packing(hf_config: PretrainedConfig, attention: Attention) -> None:
    """Raise `ModelError` for what packing changes, or a resume could not repeat."""
    if getattr(hf_config, "attention_dropout", 0.0):
        raise ModelError(
            f"attention_dropout = {hf_config.attention_dropout}: a resume could not repeat it; set it to 0"
        )
    kinds = set(getattr(hf_config, "layer_types", None) or ())
    if not kinds and getattr(hf_config, "sliding_window", None):
        kinds = {"sliding_attention"}  # configurations without kinds of layers have one window for all
    if other := sorted(kinds - {"full_attention", "sliding_attention"}):
        raise ModelError(
            f"the model has layers of the kind {' and '.join(other)}, which do not keep the samples of a packed "
            "sequence apart: only full_attention and sliding_attention do"
        )
    if "sliding_attention" in kinds and attention is Attention.PACKED:
        raise ModelError(
            "the model has sliding-window layers, which model.attention = 'packed' lacks: "
            f"use {Attention.SDPA.value!r} or {Attention.FLASH.value!r}"
        )


def check_sharding(model: PreTrainedModel) -> None:
    """Raise `ModelError` for a model without blocks, or with buffers that are gone once its storage is made anew.

    Weights and buffers that files hold are read after that, and rotary frequencies computed.
    """
    kind, decoder = model.config.model_type, model.get_decoder()
    if absent := [part for part in ("layers", "rotary_emb") if not hasattr(decoder, part)]:
        raise ModelError(
            f"a {kind} model has no {' and no '.join(absent)} in its decoder: "
            "train one that is made like Qwen3 or Llama"
        )
    rotary = {id(buffer) for buffer in decoder.rotary_emb.buffers()}
    kept = model.state_dict().keys()
    lost = [name for name, buffer in model.named_buffers() if name not in kept and id(buffer) not in rotary]
    if lost:
        raise ModelError(
            f"a {kind} model computes with {lost[0]}, which is in no file of weights and would be lost in sharding: "
            "train one that is made like Qwen3 or Llama"
        )
