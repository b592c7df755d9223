"""Hugging Face causal models on packed micro-batches.

    MicroBatch (numpy)  ->  Packed (tensors)  ->  model  ->  logits of targets  ->  loss

A model is first built without storage (`empty_model`), then sharded, then given its weights
(`parallel.load_weights`, or a checkpoint), so that no rank but the first ever holds it whole.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed._composable.checkpoint_activation import checkpoint
from torch.distributed.checkpoint.state_dict import ValueType
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from dataserver.wire.micro_batch import NO_TARGET, MicroBatch
from trainer.attention import register_packed_attention
from trainer.config import ModelConfig
from trainer.errors import ModelError
from trainer.loss import target_loss_sum
from trainer.trainable import check_fields, check_packing, check_sharding

WEIGHT_FILES: Final = ("*.safetensors", "*.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A micro-batch as a model wants it; m positions, of which t predict a target.

    `input_ids`, `positions`: int64[1, m], positions beginning at 0 in every sample.
    `bounds`: int32[n + 1], where samples begin, and m. `longest`: the longest of them.
    `predictors`: int64[t], which positions predict; `labels`: int64[t], what they should. `weights`: float32[t], each
    above 0, or None where all are 1: a target of weight 0 adds nothing to any sum and is not computed.
    """

    input_ids: Tensor
    positions: Tensor
    bounds: Tensor
    longest: int
    predictors: Tensor
    labels: Tensor
    weights: Tensor | None = None


def model_config(config: ModelConfig) -> PretrainedConfig:
    """The Hugging Face configuration, checked for what packing cannot do; raises `ModelError`."""
    here = config.path is None or Path(config.path).exists()
    if not here and _is_path(str(config.path)):
        raise ModelError(f"model.path: there is no such directory: {config.path}")
    try:
        if config.path is not None:
            hf_config = AutoConfig.from_pretrained(config.path)
        else:
            fields: dict[str, Any] = dict(config.config or {})
            hf_config = AutoConfig.for_model(fields.pop("model_type"), **fields)
            check_fields(fields, hf_config)
    except ModelError:
        raise
    except Exception as error:  # what configurations raise has no common base
        origin = config.config if config.path is None else config.path
        missing = "" if here else "there is no such directory here, and as a name on the hub: "
        raise ModelError(f"model {origin}: {missing}{error}") from error
    checked: PretrainedConfig = hf_config
    check_packing(checked, config.attention)
    return checked


def build_model(config: ModelConfig, hf_config: PretrainedConfig) -> PreTrainedModel:
    """The model in float32 with random weights, set up as configured."""
    register_packed_attention()
    model: PreTrainedModel = AutoModelForCausalLM.from_config(
        hf_config, dtype=torch.float32, attn_implementation=config.attention.value
    )
    if config.activation_checkpointing:
        for block in blocks(model):
            checkpoint(block, preserve_rng_state=False)
    model.train()
    return model


def blocks(model: PreTrainedModel) -> list[nn.Module]:
    """The decoder's layers."""
    return list(model.get_decoder().layers)


def empty_model(config: ModelConfig, hf_config: PretrainedConfig) -> PreTrainedModel:
    """The model in float32 on the meta device: shapes, and no storage.

    Raises `ModelError` for one that cannot be built, or not be trained.
    """
    try:
        with torch.device("meta"):
            model = build_model(config, hf_config)
    except Exception as error:  # whatever a model's code meets in figures that it was not written for
        raise ModelError(
            f"a {hf_config.model_type} model cannot be built as configured: {type(error).__name__}: {error}"
        ) from error
    check_sharding(model)
    return model


def full_weights(config: ModelConfig, hf_config: PretrainedConfig) -> dict[str, ValueType]:
    """All weights in float32 on the CPU, read from `path` or drawn from `seed`. Raises `ModelError`."""
    if config.path is not None and _has_weights(config.path):
        model: nn.Module = _read_weights(config.path)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model = build_model(config, hf_config)
    return dict(model.state_dict())


def pack(batch: MicroBatch, device: torch.device) -> Packed:
    """Move a micro-batch to the device.

    One without samples becomes a single token that predicts nothing: every rank has to take
    part in every collective, and its gradient is exactly 0. Raises `ModelError` for one with images.
    """
    if batch.images is not None:
        raise ModelError(
            f"step {batch.step}, round {batch.round} has images, and this trainer's models take text only: "
            "train a vision-language model on dataserver.client, whose micro-batches carry them"
        )
    if not len(batch.lengths):
        return _nothing(device)
    labels, weights = batch.labels, None
    if batch.loss_weight is not None:
        weights = batch.label_weights
        labels[weights == 0] = NO_TARGET
    predictors = np.flatnonzero(labels != NO_TARGET)
    if not len(predictors):
        predictors = np.zeros(1, dtype=np.int64)
    return Packed(
        input_ids=torch.from_numpy(batch.tokens.astype(np.int64)).to(device, non_blocking=True).unsqueeze(0),
        positions=torch.from_numpy(batch.positions).to(device, non_blocking=True).unsqueeze(0),
        bounds=torch.from_numpy(batch.cu_seqlens).to(device, non_blocking=True),
        longest=int(batch.footprints.max()),
        predictors=torch.from_numpy(predictors).to(device, non_blocking=True),
        labels=torch.from_numpy(labels[predictors]).to(device, non_blocking=True),
        weights=None if weights is None else torch.from_numpy(weights[predictors]).to(device, non_blocking=True),
    )


def predictor_logits(model: PreTrainedModel, packed: Packed) -> Tensor:
    """Logits [t, vocabulary] of the positions that predict a target, and of no others."""
    output = model(
        input_ids=packed.input_ids,
        position_ids=packed.positions,
        use_cache=False,
        logits_to_keep=packed.predictors,
        cu_seq_lens_q=packed.bounds,
        cu_seq_lens_k=packed.bounds,
        max_length_q=packed.longest,
        max_length_k=packed.longest,
    )
    logits: Tensor = output.logits
    return logits.squeeze(0)


def micro_batch_loss_sum(model: PreTrainedModel, packed: Packed) -> Tensor:
    """Weighted sum of the micro-batch's cross entropies, a float32 scalar that backward starts from."""
    return target_loss_sum(predictor_logits(model, packed), packed.labels, packed.weights)


def _read_weights(path: str) -> nn.Module:
    """All of them come from `path`: transformers would draw what is not there at random, and go on."""
    try:
        read: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, output_loading_info=True)
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise ModelError(f"model.path: the weights in {path} cannot be read: {error}") from error
    whole: nn.Module = read[0]
    if absent := sorted(read[1]["missing_keys"]):
        raise ModelError(
            f"model.path: {path} lacks {len(absent)} weights of the model, such as {absent[0]}; they would be random. "
            "Complete it, or name a directory without weights to start from random ones"
        )
    return whole


def _is_path(name: str) -> bool:
    """Whether `name` can only be a path: names on the hub are NAME or OWNER/NAME."""
    return name.startswith((".", os.sep)) or name.count(os.sep) > 1


def _has_weights(path: str) -> bool:
    """A name that is no directory is the hub's, which holds weights."""
    directory = Path(path)
    return not directory.is_dir() or any(file for pattern in WEIGHT_FILES for file in directory.glob(pattern))


def _nothing(device: torch.device) -> Packed:
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    return Packed(
        input_ids=zero.unsqueeze(0),
        positions=zero.unsqueeze(0),
        bounds=torch.tensor([0, 1], dtype=torch.int32, device=device),
        longest=1,
        predictors=zero,
        labels=torch.full((1,), NO_TARGET, dtype=torch.int64, device=device),
    )
