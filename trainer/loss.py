"""Cross entropy of one micro-batch, as its share of a step's weighted mean over all ranks.

    loss of a step = sum over ranks, rounds, targets of weight * -log p(target) / sum of all weights

It is the mean that PyTorch's `CrossEntropyLoss` takes with class weights (torch.nn.CrossEntropyLoss, reduction =
"mean"), with a weight for each target instead: only the proportions of weights matter. Without weights all are 1. The
denominator, `weight_sum`, belongs to the whole step, so the shares of micro-batches add up to the same loss and
gradient however samples are packed, cut into rounds or spread over ranks.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

# Targets whose float32 logits exist at one time: 1024 x 152k words x 4 bytes are 0.6 GB.
CHUNK_TARGETS: Final = 1024


def target_loss_sum(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Weighted sum of cross entropies in float32 (a scalar); labels of -100 count nothing.

    `logits`: any float type [n, vocabulary]. `labels`: int64[n]. `weights`: float32[n], or None where all are 1. Only a
    chunk of the float32 logits is alive at a time, forward and backward.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    total = logits.new_zeros((), dtype=wide)
    chunks = zip(logits.split(CHUNK_TARGETS), labels.split(CHUNK_TARGETS), strict=True)
    for number, (chunk, chunk_labels) in enumerate(chunks):
        begin = number * CHUNK_TARGETS
        chunk_weights = None if weights is None else weights[begin : begin + CHUNK_TARGETS]
        total = total + checkpoint(
            _chunk_loss, chunk, chunk_labels, chunk_weights, wide, use_reentrant=False, preserve_rng_state=False
        )
    return total


def loss_share(loss_sum: Tensor, weight_sum: float) -> Tensor:
    """Share of the step's mean loss; 0 for a step that has no targets, or none of any weight."""
    return loss_sum / (weight_sum or 1.0)


def _chunk_loss(logits: Tensor, labels: Tensor, weights: Tensor | None, wide: torch.dtype) -> Tensor:
    if weights is None:
        return cross_entropy(logits.to(wide), labels, reduction="sum", ignore_index=-100)
    losses = cross_entropy(logits.to(wide), labels, reduction="none", ignore_index=-100)
    return (losses * weights).sum()
