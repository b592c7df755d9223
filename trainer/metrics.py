"""A step's figures: on the screen as a line, and wherever else the configuration sends them."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Final, Self, TextIO

from dataserver.sinks import MetricsConfig, Sink, open_sinks


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncFigures:
    """A sync of the weights after `step` that has ended; the counts are of the attempt's, with this one.

    `sync_bytes`: what was to move. `sync_s`: from the prepare to the end. `sync_stall_s`: how long of that training
    stood still.
    """

    attempt: int
    step: int
    sync_id: str
    sync_outcome: str
    sync_landed: int
    sync_failed: int
    sync_skipped: int
    sync_bytes: int
    sync_stall_s: float
    sync_s: float


Figures = StepFigures | EvalFigures | SyncFigures

KIND: Final[dict[type[Figures], str]] = {StepFigures: "train", EvalFigures: "eval", SyncFigures: "sync"}
"""Under which name sinks keep them."""


class Metrics:
    """The screen and all sinks of a configuration; neither on ranks other than the first."""

    def __init__(self, sinks: Sequence[Sink], screen: "Screen | None" = None) -> None:
        self._screen = screen
        self._sinks = sinks
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for sink in self._sinks:
            self._open.callback(sink.close)
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def write(self, figures: Figures) -> None:
        """Show figures, and hand them to every sink."""
        if self._screen is not None:
            self._screen.write(figures)
        for sink in self._sinks:
            sink.write(figures.step, asdict(figures), _scalars(figures))


class Screen:
    """One readable line a step, an evaluation, a sync. `last_step` is the run's, where it has one."""

    def __init__(self, last_step: int | None, out: TextIO) -> None:
        self._of = "" if last_step is None else f"/{last_step}"
        self._out = out

    def write(self, figures: Figures) -> None:
        """Write and flush, so that a killed trainer's last step is seen."""
        if isinstance(figures, SyncFigures):
            told = _sync(figures)
        else:
            told = _evaluation(figures) if isinstance(figures, EvalFigures) else _step(figures)
        self._out.write(f"step {figures.step}{self._of}  {told}\n")
        self._out.flush()


def open_metrics(config: MetricsConfig, *, run: str, last_step: int | None, resolved: dict[str, Any]) -> Metrics:
    """Open what is configured, and the screen; raises `InvalidConfigError` for a package that is missing."""
    return Metrics(open_sinks(config, run=run, resolved=resolved), Screen(last_step, sys.stdout))


def _step(f: StepFigures) -> str:
    return (
        f"loss {f.loss:.4f}  lr {f.lr:.2e}  |g| {f.grad_norm:.3f}  "
        f"{f.tokens_per_s:,.0f} tok/s  {f.samples} samples  {f.targets:,} targets  {f.rounds} rounds  "
        f"wait {f.data_wait_s:.3f} s  step {f.step_s:.2f} s"
    )


def _sync(f: SyncFigures) -> str:
    return (
        f"weights {f.sync_outcome}  {f.sync_bytes / 1e6:,.1f} MB  training stood still {f.sync_stall_s:.2f} s  "
        f"of {f.sync_s:.2f} s"
    )


def _evaluation(f: EvalFigures) -> str:
    return f"eval loss {f.eval_loss:.4f}  {f.eval_samples} samples  {f.eval_targets:,} targets  {f.eval_s:.2f} s"


def _scalars(figures: Figures) -> dict[str, float]:
    kind = KIND[type(figures)]
    values = {name: value for name, value in asdict(figures).items() if name != "step" and not isinstance(value, str)}
    return {f"{kind}/{name.removeprefix(f'{kind}_')}": float(value) for name, value in values.items()}
