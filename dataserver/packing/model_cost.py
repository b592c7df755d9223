"""The cost model of a language model, read from its configuration: forward FLOPs, relative.

Per token and layer: the projections of attention, 2 h² for its output, and 6 h ffn for a gated
feed-forward of width ffn; once per token, 2 h vocab for the head. Per squared token and layer:
2 heads head_dim for scores and values. With multi-head latent attention scores and values differ in width.

The names are those of a Hugging Face `config.json`.
"""

from collections.abc import Mapping
from typing import Any

from dataserver.errors import InvalidSpecError
from dataserver.packing.cost import CostModel

Config = Mapping[str, Any]

_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
_TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_topk")


def cost_of_model(config: Config) -> CostModel:
    """The coefficients for the model of `config`, a parsed `config.json`.

    Of a multimodal configuration its `text_config` counts. A mixture of experts counts the experts
    that a token goes to and those that all share, and its dense layers apart. Layers of linear
    attention have no quadratic part; a sliding window is counted as full attention. The output
    projection counts 2 h² also where heads times head_dim is not h, as in the published costs
    that this formula is compared with.

    Raises `InvalidSpecError` for a configuration that lacks a field or has a nonsensical one.
    """
    text = _text_config(config)
    hidden, layers = _size(text, "hidden_size"), _size(text, "num_hidden_layers")
    ffn_widths = sum(_ffn_width(text, layer) for layer in range(layers))
    linear = layers * (_projections(text, hidden) + 2 * hidden * hidden) + 6 * hidden * ffn_widths
    attending = layers - list(text.get("layer_types") or ()).count("linear_attention")
    return CostModel(linear + 2 * hidden * _size(text, "vocab_size"), attending * _attention(text, hidden))


def _text_config(config: Config) -> Config:
    """The part that describes the language model; what it leaves out stands around it."""
    for name in ("thinker_config", "text_config"):
        inner = config.get(name)
        if isinstance(inner, Mapping):
            config = {**config, **inner}
    return config


def _projections(text: Config, hidden: int) -> int:
    """FLOPs a token of the query, key and value projections of one layer."""
    heads = _size(text, "num_attention_heads")
    if not text.get("kv_lora_rank"):
        keys = _size(text, "num_key_value_heads", heads)
        return 2 * hidden * (heads + 2 * keys) * _head_dim(text, hidden)
    nope, rope, value = (_size(text, name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    latent, query_latent = _size(text, "kv_lora_rank"), text.get("q_lora_rank")
    queries = heads * (nope + rope)
    query = query_latent * (hidden + queries) if query_latent else hidden * queries
    return 2 * (query + hidden * (latent + rope) + latent * heads * (nope + value))


def _attention(text: Config, hidden: int) -> int:
    """FLOPs a squared token of one layer."""
    heads = _size(text, "num_attention_heads")
    if not text.get("kv_lora_rank"):
        return 2 * heads * _head_dim(text, hidden)
    return heads * sum(_size(text, name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))


def _ffn_width(text: Config, layer: int) -> int:
    """Neurons of the feed-forward that a token meets in one layer."""
    experts = next((text[name] for name in _EXPERTS if text.get(name)), 0)
    if not experts or _is_dense(text, layer):
        return _size(text, "intermediate_size")
    top_k = next((_size(text, name) for name in _TOP_K if text.get(name)), None)
    if top_k is None:
        raise InvalidSpecError(f"the model's configuration has {experts} experts but no num_experts_per_tok")
    width = _size(text, "moe_intermediate_size", text.get("intermediate_size"))
    shared = (text.get("n_shared_experts") or text.get("num_shared_experts") or 0) * width
    return top_k * width + (text.get("shared_expert_intermediate_size") or shared)


def _is_dense(text: Config, layer: int) -> bool:
    """Whether a layer of a mixture of experts has one plain feed-forward instead."""
    if kinds := text.get("mlp_layer_types"):
        return bool(kinds[layer] == "dense")
    first = text.get("first_k_dense_replace") or text.get("num_dense_layers") or 0
    if layer < first or layer in (text.get("mlp_only_layers") or ()):
        return True
    # Two spellings: every n-th layer from 0 on, or every n-th counted from 1.
    return bool(layer % (text.get("moe_layer_freq") or 1) or (layer + 1) % (text.get("decoder_sparse_step") or 1))


def _head_dim(text: Config, hidden: int) -> int:
    return _size(text, "head_dim", hidden // _size(text, "num_attention_heads"))


def _size(text: Config, name: str, default: int | None = None) -> int:
    value = text.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidSpecError(f"the model's configuration has {name} = {value!r}: a whole number from 1 on is needed")
    return value
