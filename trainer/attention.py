"""Attention over a packed sequence that never crosses a sample's boundary.

    tokens      a a a a b b c c c        one sequence of m positions
    cu_seqlens  0       4   6     9      where samples begin, and m

Registered with transformers under the name `packed`. On a GPU in half precision it is one
variable-length kernel. Elsewhere samples are attended one by one with the causal kernel: the
work is the sum of squared sample lengths, and a sample's result is what it would be alone.
"""

from itertools import pairwise
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from trainer.errors import ModelError

PACKED: Final = "packed"

# Capped scores, sinks, windows: by the names under which models ask for them.
_OTHER_ATTENTION: Final = ("softcap", "s_aux", "sliding_window")
_INSTEAD: Final = "use 'sdpa' or 'flash_attention_2', if the model has it"


def register_packed_attention() -> None:
    """Make `packed` known to transformers. Idempotent.

    No mask function goes with it, so that models build no mask of m x m.
    """
    AttentionInterface.register(PACKED, packed_attention)


def packed_attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: Tensor | None,
    *,
    scaling: float,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int = 0,
    **others: object,
) -> tuple[Tensor, None]:
    """Causal attention inside each sample.

    `query` [1, heads, m, d]; `key`, `value` [1, kv_heads, m, d]; `cu_seq_lens_q` int32[n + 1].
    Returns [1, m, heads, d] and no weights. Raises `ModelError` for a model that wants another attention than this.
    """
    if asked := [name for name in _OTHER_ATTENTION if others.get(name) is not None]:
        raise ModelError(f"model.attention = 'packed' lacks what the model asks of it: {', '.join(asked)}; {_INSTEAD}")
    if cu_seq_lens_q is None:
        raise ModelError(f"the model does not tell model.attention = 'packed' where samples begin; {_INSTEAD}")
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16):
        return _varlen(query, key, value, scale=scaling, bounds=cu_seq_lens_q, longest=max_length_q), None
    bounds = cu_seq_lens_q.tolist()
    samples = [
        scaled_dot_product_attention(
            query[:, :, begin:end],
            key[:, :, begin:end],
            value[:, :, begin:end],
            is_causal=True,
            scale=scaling,
            enable_gqa=True,
        )
        for begin, end in pairwise(bounds)
    ]
    return torch.cat(samples, dim=2).transpose(1, 2).contiguous(), None


def _varlen(query: Tensor, key: Tensor, value: Tensor, *, scale: float, bounds: Tensor, longest: int) -> Tensor:
    """One kernel for all samples; needs a CUDA device."""
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - compiles operators on import

    out = varlen_attn(
        query[0].transpose(0, 1).contiguous(),
        key[0].transpose(0, 1).contiguous(),
        value[0].transpose(0, 1).contiguous(),
        bounds,
        bounds,
        longest,
        longest,
        scale=scale,
        window_size=(-1, 0),
        enable_gqa=True,
    )
    # With no auxiliary output asked for, it is one tensor.
    return cast("Tensor", out).unsqueeze(0)
