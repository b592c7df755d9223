"""A trainer's configuration; `config_file` reads it.

    [run]         what is consumed: name, order, batch
    [model]       what is trained
    [optim]       how its weights change
    [parallel]    how it is spread over ranks
    [data]        how the data server is reached
    [checkpoint]  where its state is kept
    [metrics]     where its figures go
    [eval]        what its loss is measured on besides
    [weights]     how its weights reach inference engines

Nothing here knows torch, so that a configuration can be checked anywhere.
"""

from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from dataserver.run_spec import BatchSpec, OrderSpec, RunName, RunSpec, Spec, check_fits
from dataserver.sinks import MetricsConfig
from trainer.weights_config import WeightsConfig


class Section(Spec):
    """Base of the sections: as a spec, and every number is finite."""

    model_config = ConfigDict(allow_inf_nan=False)


class Precision(StrEnum):
    """In which type a model computes. Weights, gradients and optimizer state are float32 always."""

    FP32 = "fp32"
    BF16 = "bf16"


class Attention(StrEnum):
    """Which kernel keeps packed samples apart."""

    PACKED = "packed"
    SDPA = "sdpa"
    FLASH = "flash_attention_2"


class ScheduleKind(StrEnum):
    """How the learning rate goes on after the warm-up."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"


class DeviceKind(StrEnum):
    """Where a model computes."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class RunConfig(Section):
    """`[run]`: what is consumed, and how it is cut and packed."""

    name: RunName
    """Name of the run on the server."""
    order: OrderSpec
    """What decides the order of samples."""
    batch: BatchSpec
    """How the order is cut and packed. It may change with a resume."""

    @model_validator(mode="after")
    def _longest_sample_fits(self) -> Self:
        check_fits(self.order, self.batch)
        return self

    def spec(self, vocab_size: int) -> RunSpec:
        """The run spec for a model of that vocabulary."""
        return RunSpec(order=self.order, batch=self.batch, vocab_size=vocab_size)


class ModelConfig(Section):
    """`[model]`: which Hugging Face causal model is trained. Give `path` or `config`."""

    path: str | None = None
    """Directory (or hub name) of a model. A directory without weights starts from random ones."""
    config: dict[str, JsonValue] | None = None
    """A Hugging Face configuration, `model_type` among its fields; weights are random."""
    seed: int = Field(default=0, ge=0)
    """Seed of random weights."""
    dtype: Precision = Precision.FP32
    """Type of the computation: `fp32` or `bf16`. Weights and optimizer state stay float32."""
    attention: Attention = Attention.PACKED
    """`packed` (own: variable-length kernels on GPUs, sample by sample elsewhere), `sdpa` (a dense mask), or
    `flash_attention_2` (needs the package flash-attn)."""
    activation_checkpointing: bool = False
    """Recompute each block's activations in the backward pass instead of keeping them."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.path is None) == (self.config is None):
            raise ValueError("give exactly one of path and config")
        if self.config is not None and "model_type" not in self.config:
            raise ValueError("config needs the field model_type, for instance 'qwen3' or 'llama'")
        return self


class OptimConfig(Section):
    """`[optim]`: AdamW and its learning rate."""

    lr: float = Field(default=1e-4, gt=0)
    """Learning rate after the warm-up."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the mean of gradients."""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """Decay of the mean of squared gradients."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the squared mean."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled decay of matrices; norms and biases do not decay."""
    clip_norm: float | None = Field(default=1.0, gt=0)
    """Longest gradient over all weights and ranks; a longer one is scaled down. Leave it out with `none`."""
    schedule: ScheduleKind = ScheduleKind.CONSTANT
    """`constant`, or `linear` or `cosine` decay to `final_lr_fraction`."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises in a line to `lr`."""
    total_steps: int | None = Field(default=None, ge=1)
    """Step at which a decay ends; `run.batch.max_steps` unless given."""
    final_lr_fraction: float = Field(default=0.1, ge=0, le=1)
    """What a decay leaves of `lr`."""


class ParallelConfig(Section):
    """`[parallel]`: how the model is spread over ranks."""

    device: DeviceKind = DeviceKind.AUTO
    """`cuda` (NCCL) where there is one, else `cpu` (gloo)."""
    replicas: int = Field(default=1, ge=1)
    """Copies of the sharded model (HSDP); divides the number of ranks."""
    reduce_every_round: bool = False
    """Reduce gradients in every round instead of the last of a step: more traffic, but no rank ever holds
    unsharded gradients (4 bytes a weight)."""
    collective_timeout_s: float = Field(default=1800, gt=0)
    """How long a rank waits in a collective before it ends the job. Above `data.patience_s`, because ranks
    wait there while one of them waits for the server."""


class DataConfig(Section):
    """`[data]`: how the data server is reached."""

    patience_s: float = Field(default=600, gt=0)
    """How long a server may stay away before the job ends."""
    wait_alive_s: float = Field(default=60, ge=0)
    """How long to wait for an earlier attempt of the run, whose lease must run out when it crashed."""
    credits: int = Field(default=16, ge=1, le=1024)
    """Micro-batches that the server may send ahead. Each costs its memory: give few where they hold images."""
    token_file: Path | None = None
    """File that holds the access token."""
    ca_file: Path | None = None
    """PEM file of the certificate authority; TLS is used where it is given."""


class CheckpointConfig(Section):
    """`[checkpoint]`: where the state is kept. The last step is always saved."""

    dir: Path
    """Directory of this run's checkpoints, on a filesystem that all ranks share."""
    every_steps: int | None = Field(default=None, ge=1)
    """Save after every so many steps."""
    keep_last: int = Field(default=2, ge=1)
    """How many of the newest checkpoints are kept."""
    keep_every: int | None = Field(default=None, ge=1)
    """Keep those whose step is a multiple of this for good."""
    export_dir: Path | None = None
    """Where the model is written as a Hugging Face directory after the last step."""

    @field_validator("dir", "export_dir", mode="before")
    @classmethod
    def _not_empty(cls, path: object) -> object:
        if path == "":  # an unset variable of a shell, which would be the current directory
            raise ValueError("names no directory; the current one is '.'")
        return path


class EvalConfig(Section):
    """`[eval]`: the loss on a held-out store. Training is the same with it and without, to the bit."""

    store: str = Field(min_length=1)
    """Name of the store on the server. Rows are cut, dropped and packed as those of the run."""
    every_steps: int = Field(ge=1)
    """Measure after every so many steps, and after the last."""
    max_samples: int | None = Field(default=None, ge=1)
    """Only the first so many samples of the store."""


class TrainerConfig(Section):
    """A trainer's whole configuration."""

    run: RunConfig
    """What is consumed."""
    model: ModelConfig
    """What is trained."""
    checkpoint: CheckpointConfig
    """Where the state is kept."""
    optim: OptimConfig = OptimConfig()
    """How weights change."""
    parallel: ParallelConfig = ParallelConfig()
    """How the model is spread."""
    data: DataConfig = DataConfig()
    """How the server is reached."""
    metrics: MetricsConfig = MetricsConfig()
    """Where figures go."""
    eval: EvalConfig | None = None
    """What the loss is measured on besides."""
    weights: WeightsConfig | None = None
    """How weights reach inference engines. Without it, nobody gets any."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.optim.schedule is not ScheduleKind.CONSTANT and self.schedule_steps is None:
            raise ValueError(
                f"optim.schedule = {self.optim.schedule.value!r} must know its end: "
                "set optim.total_steps or run.batch.max_steps"
            )
        if self.parallel.collective_timeout_s <= self.data.patience_s:
            raise ValueError(
                f"parallel.collective_timeout_s = {self.parallel.collective_timeout_s} must be above "
                f"data.patience_s = {self.data.patience_s}, or a pause of the server ends the job as a hang"
            )
        if self.weights is not None and self.parallel.collective_timeout_s <= self.weights.longest_wait_s:
            storage = f" and {self.weights.storage_s:g} for the object storage" if self.weights.storage_s else ""
            raise ValueError(
                f"parallel.collective_timeout_s = {self.parallel.collective_timeout_s} must be above "
                f"{self.weights.longest_wait_s:g}, prepare_s + send_s + commit_s of [weights] with an abort{storage}, "
                "or slow engines end the job as a hang"
            )
        if self.weights is not None:
            kept = {"checkpoint.dir": self.checkpoint.dir, "checkpoint.export_dir": self.checkpoint.export_dir}
            self.weights.refuse_overlap(self.run.name, kept)
        return self

    @property
    def schedule_steps(self) -> int | None:
        """The step at which a decay of the learning rate ends."""
        return self.run.batch.max_steps if self.optim.total_steps is None else self.optim.total_steps
