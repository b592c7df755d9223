"""What is sent of a model: names that engines load, tied weights once, no buffers, no merged experts."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from trainer.config import Precision
from trainer.errors import ModelError
from trainer.weights.outgoing import Outgoing, outgoing
from trainer.weights_config import WeightsConfig

TINY = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip
CONFIG = WeightsConfig(transport="gloo", bucket_bytes=5000)


def sent_of(kind: str, *, tied: bool = False, precision: Precision = Precision.FP32) -> Outgoing:
    config = AutoConfig.for_model(kind, **TINY, tie_word_embeddings=tied)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return outgoing(model, CONFIG, precision)


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("tied", [True, False])
def test_names_are_those_of_the_models_files_and_tied_ones_go_once(kind: str, tied: bool) -> None:
    sent = sent_of(kind, tied=tied)
    names = [spec.name for spec in sent.specs]
    assert names[0] == "model.embed_tokens.weight"
    assert ("lm_head.weight" in names) is not tied
    assert len(set(names)) == len(names)
    assert not any("rotary" in name or "inv_freq" in name for name in names)
    assert "model.layers.1.self_attn.q_proj.weight" in names
    assert [index for bucket in sent.buckets for index in bucket] == list(range(len(names)))


@pytest.mark.parametrize(("precision", "dtype"), [(Precision.FP32, "float32"), (Precision.BF16, "bfloat16")])
def test_the_type_is_that_of_the_computation_unless_told(precision: Precision, dtype: str) -> None:
    sent = sent_of("qwen3", precision=precision)
    assert {spec.dtype for spec in sent.specs} == {dtype}
    assert sent.size == sum(weight.numel() * sent.dtype.itemsize for weight in sent.weights)


def test_a_model_that_keeps_experts_merged_is_refused() -> None:
    with pytest.raises(ModelError, match=r"leave the section \[weights\] out"):
        sent_of("qwen3_moe")
