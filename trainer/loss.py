"""Cross entropy of one micro-batch, as its share of a step's mean over all ranks.

    loss of a step = sum over ranks, rounds, targets of -log p(target) / target_count

`target_count` belongs to the whole step, so the shares of micro-batches add up to the same loss
and gradient however samples are packed, cut into rounds or spread over ranks.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

# Targets whose float32 logits exist at one time: 1024 x 152k words x 4 bytes are 0.6 GB.
CHUNK_TARGETS: Final = 1024


def target_loss_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum of cross entropies in float32 (a scalar); labels of -100 count nothing.

    `logits`: any float type [n, vocabulary]. `labels`: int64[n]. Only a chunk of the float32
    logits is alive at a time, forward and backward.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    total = logits.new_zeros((), dtype=wide)
    for chunk, chunk_labels in zip(logits.split(CHUNK_TARGETS), labels.split(CHUNK_TARGETS), strict=True):
        total = total + checkpoint(
            _chunk_loss, chunk, chunk_labels, wide, use_reentrant=False, preserve_rng_state=False
        )
    return total


def loss_share(loss_sum: Tensor, target_count: int) -> Tensor:
    """Share of the step's mean loss; 0 for a step that has no targets at all."""
    return loss_sum / max(1, target_count)


def _chunk_loss(logits: Tensor, labels: Tensor, wide: torch.dtype) -> Tensor:
    return cross_entropy(logits.to(wide), labels, reduction="sum", ignore_index=-100)
