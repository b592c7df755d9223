"""Cost models from configurations of models, against sums done by hand."""

import numpy as np
import pytest

from dataserver.errors import InvalidSpecError
from dataserver.packing.cost import CostModel
from dataserver.packing.model_cost import cost_of_model

TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
    "vocab_size": 32,
}
QWEN3_600M = {
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 151_936,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24}

# What all layers of TINY cost without their feed-forwards, and the head.
ATTENTION, HEAD = 2 * (2 * 16 * 6 * 8 + 2 * 16 * 16), 2 * 16 * 32


def ffn(*widths):
    return ATTENTION + HEAD + sum(6 * 16 * width for width in widths)


def test_dense_models_give_the_published_vectors():
    assert cost_of_model(TINY) == CostModel(17_408, 64)
    assert cost_of_model(QWEN3_600M) == CostModel(1_133_248_512, 114_688)


def test_one_sample_of_32_costs_more_than_two_of_16():
    cost = cost_of_model(TINY)
    assert sum(cost.of(np.array([32]))) == 622_592
    assert sum(cost.of(np.array([16, 16]))) == 589_824


def test_a_missing_head_dim_and_missing_key_heads_follow_from_the_others():
    plain = {name: value for name, value in TINY.items() if name not in {"head_dim", "num_key_value_heads"}}
    assert cost_of_model(plain) == cost_of_model(TINY)
    assert cost_of_model({**plain, "head_dim": None, "num_key_value_heads": None}) == cost_of_model(TINY)


@pytest.mark.parametrize(
    ("fields", "widths"),
    [
        (EXPERTS, (48, 48)),
        ({**EXPERTS, "n_shared_experts": 1}, (72, 72)),
        ({**EXPERTS, "shared_expert_intermediate_size": 10}, (58, 58)),
        ({**EXPERTS, "first_k_dense_replace": 1, "n_shared_experts": 2}, (64, 96)),
        ({**EXPERTS, "num_dense_layers": 1}, (64, 48)),
        ({**EXPERTS, "mlp_only_layers": [1]}, (48, 64)),
        ({**EXPERTS, "decoder_sparse_step": 2}, (64, 48)),
        ({**EXPERTS, "moe_layer_freq": 2}, (48, 64)),
        ({**EXPERTS, "mlp_layer_types": ["dense", "sparse"]}, (64, 48)),
        ({"n_routed_experts": 4, "num_experts_per_tok": 3, "moe_intermediate_size": 5}, (15, 15)),
        ({"num_local_experts": 4, "num_experts_per_tok": 2}, (128, 128)),
        ({"num_experts": 0, "num_experts_per_tok": None}, (64, 64)),
    ],
)
def test_layers_of_experts_count_the_experts_that_a_token_meets(fields, widths):
    assert cost_of_model({**TINY, **fields}) == CostModel(ffn(*widths), 64)


@pytest.mark.parametrize(("query_latent", "query"), [(None, 16 * 2 * 12), (6, 6 * 16 + 6 * 2 * 12)])
def test_latent_attention_has_projections_and_widths_of_its_own(query_latent, query):
    latent = {"kv_lora_rank": 5, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 7}
    projections = 2 * (query + 16 * (5 + 4) + 5 * 2 * (8 + 7))
    expected = CostModel(2 * (projections + 2 * 16 * 16 + 6 * 16 * 64) + HEAD, 2 * (2 * (8 + 4) + 2 * 7))
    assert cost_of_model({**TINY, **latent, "q_lora_rank": query_latent}) == expected


def test_of_a_multimodal_model_its_text_part_counts():
    inner = {name: value for name, value in TINY.items() if name != "vocab_size"}
    vision = {"hidden_size": 999, "num_hidden_layers": 99}
    outer = {"text_config": inner, "vision_config": vision, "vocab_size": 32, "hidden_size": 1}
    assert cost_of_model(outer) == cost_of_model(TINY)
    assert cost_of_model({"thinker_config": outer}) == cost_of_model(TINY)


def test_layers_of_linear_attention_have_no_quadratic_part():
    assert cost_of_model({**TINY, "layer_types": ["linear_attention", "full_attention"]}).quadratic == 32


@pytest.mark.parametrize("name", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
@pytest.mark.parametrize("value", [None, 0, "16", 1.5, True])
def test_a_field_that_is_missing_or_no_size_is_refused_by_name(name, value):
    with pytest.raises(InvalidSpecError, match=f"{name} = {value!r}"):
        cost_of_model({**TINY, name: value})


def test_experts_without_a_number_a_token_are_refused():
    with pytest.raises(InvalidSpecError, match="8 experts but no num_experts_per_tok"):
        cost_of_model({**TINY, "num_experts": 8})
