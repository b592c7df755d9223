"""What is sent: every weight once, under its Hugging Face name, in the serving type.

Buffers are not sent: engines compute them. Of tied weights one name is sent, that of the
embedding, which is what vLLM loads for such a model. LoRA is not known here: all weights are sent.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from dataserver.weight_buckets import TensorSpec, pack_in_order
from trainer.config import Precision
from trainer.errors import ModelError
from trainer.weights_config import ServingType, WeightsConfig

TORCH_TYPE: Final = {
    ServingType.FP32: torch.float32,
    ServingType.BF16: torch.bfloat16,
    ServingType.FP16: torch.float16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """All weights of a model in the order in which they are sent; the same on every rank.

    `weights[i]`: the live weight, a DTensor where the model is sharded. `buckets`: which travel together.
    """

    specs: tuple[TensorSpec, ...]
    weights: tuple[Tensor, ...]
    dtype: torch.dtype
    buckets: tuple[range, ...]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(spec.size for spec in self.specs)

    def sizes(self, bucket: int) -> list[int]:
        """Bytes of each weight of a bucket."""
        return [self.specs[index].size for index in self.buckets[bucket]]


def outgoing(model: PreTrainedModel, config: WeightsConfig, precision: Precision) -> Outgoing:
    """What is sent of a model that computes in `precision`. Raises `ModelError` where engines know other names."""
    _check_names(model)
    dtype = TORCH_TYPE[config.dtype or ServingType(precision.value)]
    # Of several names of one weight, the first is listed.
    named = dict(model.named_parameters())
    specs = tuple(
        TensorSpec(name=name, dtype=str(dtype).removeprefix("torch."), shape=tuple(weight.shape))
        for name, weight in named.items()
    )
    return Outgoing(
        specs=specs,
        weights=tuple(named.values()),
        dtype=dtype,
        buckets=tuple(pack_in_order([spec.size for spec in specs], config.bucket_bytes)),
    )


def _check_names(model: PreTrainedModel) -> None:
    """Raise `ModelError` when the model's files, which engines read, name other weights than its memory does."""
    meta = {name: torch.empty(weight.shape, device="meta") for name, weight in model.named_parameters()}
    if foreign := sorted(set(meta) - set(revert_weight_conversion(model, dict(meta)))):
        raise ModelError(
            f"[weights]: {type(model).__name__} keeps weights merged that its files have apart, such as "
            f"{foreign[0]}, and no way is known here to send those to engines: leave the section [weights] out"
        )
