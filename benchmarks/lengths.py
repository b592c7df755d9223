"""Lengths and costs that benchmarks of packing have in common: assumed lognormals, and two models."""

import numpy as np

from dataserver.packing.cost import CostModel
from dataserver.packing.model_cost import cost_of_model

QWEN3_600M = CostModel(1_133_248_512, 114_688)
GLM_4_5_AIR = cost_of_model(
    {
        "hidden_size": 4096,
        "num_hidden_layers": 46,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 10_944,
        "moe_intermediate_size": 1408,
        "n_routed_experts": 128,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "vocab_size": 151_552,
    }
)

# Median, sigma, longest.
LOGNORMALS = {
    "chat": (330, 1.0, 4096),
    "instruct": (360, 0.8, 4096),
    "reasoning": (5000, 0.85, 32_768),
    "agent": (15_000, 0.55, 32_768),
}


def lengths_of(name, tokens, capacity, seed=5):
    """At least `tokens` tokens of one of the assumed distributions, none longer than `capacity`."""
    rng = np.random.default_rng(seed)

    def lognormal(count, median, sigma, longest):
        values = np.exp(rng.normal(np.log(median), sigma, count))
        return np.clip(values, 2, min(longest, capacity)).astype(np.int64)

    if name in LOGNORMALS:
        return lognormal(2 * tokens // LOGNORMALS[name][0] + 100, *LOGNORMALS[name])
    count = tokens // 1500 + 100  # 60 % chat, 39 % reasoning, 1 % of full length
    parts = [lognormal(6 * count // 10, 330, 1.0, 4096), lognormal(39 * count // 100, 5000, 0.85, capacity)]
    return rng.permutation(np.concatenate([*parts, np.full(count // 100, capacity)]))


def one_step(lengths, budget):
    """The largest prefix of whole samples that fits a budget of tokens."""
    return lengths[: np.searchsorted(np.cumsum(lengths), budget, side="right")]
