"""A step's figures, and where they go: screen, JSON lines, TensorBoard, Weights & Biases."""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from dataserver.errors import InvalidConfigError
from trainer.config import MetricsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """Figures of one optimizer step, over all ranks unless they say otherwise.

    `loss`: weighted mean over the step's targets, before its update. `grad_norm`: before clipping.
    `data_wait_s`: time for data of the rank that waited longest. `empty_micro_batches`: those
    without samples, of `rounds` x ranks. `padding`: positions that alignment adds.
    """

    attempt: int
    step: int
    epoch: int
    loss: float
    lr: float
    grad_norm: float
    step_s: float
    data_wait_s: float
    tokens_per_s: float
    tokens: int
    targets: int
    samples: int
    rounds: int
    empty_micro_batches: int
    padding: int
    sync_weights: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalFigures:
    """The loss on a held-out store with the weights after `step`: mean over `eval_targets` targets."""

    attempt: int
    step: int
    eval_loss: float
    eval_targets: int
    eval_samples: int
    eval_s: float


Figures = StepFigures | EvalFigures


class Sink(Protocol):
    """Takes figures."""

    def write(self, figures: Figures) -> None:
        """Take one step's, or an evaluation's."""

    def close(self) -> None:
        """Flush and let go."""


class Metrics:
    """All sinks of a configuration; none on ranks other than the first."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for sink in self._sinks:
            self._open.callback(sink.close)
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def write(self, figures: Figures) -> None:
        """Hand figures to every sink."""
        for sink in self._sinks:
            sink.write(figures)


class Screen:
    """One readable line a step, and one an evaluation. `last_step` is the run's, where it has one."""

    def __init__(self, last_step: int | None, out: TextIO) -> None:
        self._of = "" if last_step is None else f"/{last_step}"
        self._out = out

    def write(self, figures: Figures) -> None:
        """Write and flush, so that a killed trainer's last step is seen."""
        told = _evaluation(figures) if isinstance(figures, EvalFigures) else _step(figures)
        self._out.write(f"step {figures.step}{self._of}  {told}\n")
        self._out.flush()

    def close(self) -> None:
        """Nothing to let go of."""


class JsonLines:
    """Appends an object a step, and one an evaluation; a resumed run goes on in the same file, as another attempt."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a")

    def write(self, figures: Figures) -> None:
        """Append and flush."""
        self._file.write(json.dumps(asdict(figures)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """Scalars under `train/` and `eval/`."""

    def __init__(self, directory: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - slow to import, seldom wanted

        self._writer = SummaryWriter(str(directory))

    def write(self, figures: Figures) -> None:
        """Add every figure as a scalar."""
        for name, value in _scalars(figures).items():
            self._writer.add_scalar(name, value, figures.step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class WeightsAndBiases:
    """A run of the same name in a project."""

    def __init__(self, project: str, run: str, config: dict[str, Any]) -> None:
        try:
            wandb = import_module("wandb")
        except ImportError as error:
            raise InvalidConfigError(
                f"metrics.wandb_project = {project!r} needs the package wandb, which is not installed: "
                "install it, or leave the field out"
            ) from error
        self._run = wandb.init(project=project, name=run, config=config)

    def write(self, figures: Figures) -> None:
        """Log every figure at its step."""
        self._run.log(_scalars(figures), step=figures.step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


def open_metrics(config: MetricsConfig, *, run: str, last_step: int | None, resolved: dict[str, Any]) -> Metrics:
    """Open what is configured, and the screen; raises `InvalidConfigError` for a package that is missing."""
    sinks: list[Sink] = [Screen(last_step, sys.stdout)]
    if config.wandb_project is not None:
        sinks.append(WeightsAndBiases(config.wandb_project, run, resolved))
    if config.jsonl is not None:
        sinks.append(JsonLines(config.jsonl))
    if config.tensorboard is not None:
        sinks.append(TensorBoard(config.tensorboard))
    return Metrics(sinks)


def _step(f: StepFigures) -> str:
    return (
        f"loss {f.loss:.4f}  lr {f.lr:.2e}  |g| {f.grad_norm:.3f}  "
        f"{f.tokens_per_s:,.0f} tok/s  {f.samples} samples  {f.targets:,} targets  {f.rounds} rounds  "
        f"wait {f.data_wait_s:.3f} s  step {f.step_s:.2f} s"
    )


def _evaluation(f: EvalFigures) -> str:
    return f"eval loss {f.eval_loss:.4f}  {f.eval_samples} samples  {f.eval_targets:,} targets  {f.eval_s:.2f} s"


def _scalars(figures: Figures) -> dict[str, float]:
    kind = "eval" if isinstance(figures, EvalFigures) else "train"
    named = {name.removeprefix("eval_"): value for name, value in asdict(figures).items() if name != "step"}
    return {f"{kind}/{name}": float(value) for name, value in named.items()}
