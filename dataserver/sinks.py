"""Where the figures go that a job has to tell while it runs: JSON lines, TensorBoard, Weights & Biases.

Trainer and orchestrator write to the same kinds of places, each its own figures.
"""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from dataserver.errors import InvalidConfigError
from dataserver.run_spec import Spec


class MetricsConfig(Spec):
    """`[metrics]`: where figures go, besides the screen."""

    jsonl: Path | None = None
    """File of JSON lines, appended to."""
    tensorboard: Path | None = None
    """Directory of TensorBoard events."""
    wandb_project: str | None = None
    """Project on Weights & Biases; needs the package wandb."""


class Sink(Protocol):
    """Takes figures."""

    def write(self, step: int, line: Mapping[str, object], scalars: Mapping[str, float]) -> None:
        """Take what is to be told after `step`: as one line, and number by number."""

    def close(self) -> None:
        """Flush and let go."""


class JsonLines:
    """Appends a line as an object; who comes back goes on in the same file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a")

    def write(self, step: int, line: Mapping[str, object], scalars: Mapping[str, float]) -> None:  # noqa: ARG002
        """Append and flush."""
        self._file.write(json.dumps(dict(line)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """Scalars by name."""

    def __init__(self, directory: Path) -> None:
        try:
            from tensorboard.summary import Writer  # noqa: PLC0415 - slow to import, seldom wanted
        except ImportError as error:
            raise InvalidConfigError(
                f"metrics.tensorboard = {str(directory)!r} needs the package tensorboard, which is not installed: "
                "install it, or leave the field out"
            ) from error
        self._writer = Writer(str(directory))

    def write(self, step: int, line: Mapping[str, object], scalars: Mapping[str, float]) -> None:  # noqa: ARG002
        """Add every number."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class WeightsAndBiases:
    """A run in a project. Its own steps only rise, ours go back with a resume: so `step` is a number among others."""

    def __init__(self, project: str, run: str, config: Mapping[str, Any]) -> None:
        try:
            wandb = import_module("wandb")
        except ImportError as error:
            raise InvalidConfigError(
                f"metrics.wandb_project = {project!r} needs the package wandb, which is not installed: "
                "install it, or leave the field out"
            ) from error
        self._run = wandb.init(project=project, name=run, config=dict(config))
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, line: Mapping[str, object], scalars: Mapping[str, float]) -> None:  # noqa: ARG002
        """Log every number."""
        self._run.log({"step": step, **scalars})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


def open_sinks(config: MetricsConfig, *, run: str, resolved: Mapping[str, Any]) -> list[Sink]:
    """Open what is configured, for a job called `run`; raises `InvalidConfigError` for a package that is missing."""
    sinks: list[Sink] = []
    if config.wandb_project is not None:
        sinks.append(WeightsAndBiases(config.wandb_project, run, resolved))
    if config.tensorboard is not None:
        sinks.append(TensorBoard(config.tensorboard))
    if config.jsonl is not None:
        sinks.append(JsonLines(config.jsonl))
    return sinks
