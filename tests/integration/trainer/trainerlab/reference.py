"""The loss of a step and its gradient in float64: one process, sample by sample, no packing."""

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from trainer.config import Attention, ModelConfig
from trainer.model import build_model, full_weights, model_config
from trainerlab.samples import Sample

Gradients = dict[str, np.ndarray]

# Threads that share so little work wait for one another, which takes many times the work itself on a busy machine.
torch.set_num_threads(1)


def reference_step(config: ModelConfig, samples: Sequence[Sample]) -> tuple[float, Gradients]:
    """Weighted mean loss over the targets of `samples`, and the gradient of every parameter."""
    weights = full_weights(config, model_config(config))
    model = build_model(config.model_copy(update={"attention": Attention.SDPA}), model_config(config)).double()
    model.load_state_dict({name: weight.double() for name, weight in weights.items()})
    weight_sum = sum(sample.weight_sum for sample in samples) or 1.0
    total = torch.zeros((), dtype=torch.float64)
    for sample in samples:
        tokens = torch.from_numpy(sample.tokens.astype(np.int64))
        logits = model(input_ids=tokens.unsqueeze(0), use_cache=False).logits[0, :-1]
        labels = torch.where(torch.from_numpy(sample.mask[1:]), tokens[1:], -100)
        losses = cross_entropy(logits, labels, reduction="none", ignore_index=-100)
        weights = 1.0 if sample.weights is None else torch.from_numpy(sample.weights[1:].astype(np.float64))
        total = total + (losses * weights).sum()
    loss = total / weight_sum
    loss.backward()
    return float(loss.detach()), {
        name: weight.grad.numpy() for name, weight in model.named_parameters() if weight.grad is not None
    }
