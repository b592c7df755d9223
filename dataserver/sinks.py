"""Where the figures go that a job has to tell while it runs: JSON lines, TensorBoard, Weights & Biases.

Trainer and orchestrator write to the same kinds of places, each its own figures.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    """Appends a line as an object; who comes back goes on in the same file, on a line of its own.

    Raises `InvalidConfigError` where the file cannot be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with _named("metrics.jsonl", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Nothing is kept back: what could not be written would be tried again, and raised again, by `close`.
            self._file = path.open("ab", buffering=0)
            if _ends_inside_a_line(path):
                self._append(b"\n")

    def write(self, step: int, line: Mapping[str, object], scalars: Mapping[str, float]) -> None:  # noqa: ARG002
        """Append."""
        with _named("metrics.jsonl", self._path):
            self._append(json.dumps(dict(line)).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, data: bytes) -> None:
        while data:  # a disk that is nearly full takes a part, and refuses the rest with a reason
            data = data[self._file.write(data) :]


@contextmanager
def _named(field: str, path: Path) -> Iterator[None]:
    """Say whose fault it is that `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise InvalidConfigError(
            f"{field} = {str(path)!r} cannot be written: {error.strerror or error}; make room, or name another place"
        ) from error


def _ends_inside_a_line(path: Path) -> bool:
    """Whether somebody was cut off while he wrote the last line."""
    if not path.is_file() or not path.stat().st_size:  # a pipe, or a terminal, has no end to look at
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


class TensorBoard:
    """Scalars by name. Raises `InvalidConfigError` where they cannot be written, at the first call after that."""

    def __init__(self, directory: Path) -> None:
        try:
            from tensorboard.summary import Writer  # noqa: PLC0415 - slow to import, seldom wanted
        except ImportError as error:
            raise InvalidConfigError(
                f"metrics.tensorboard = {str(directory)!r} needs the package tensorboard, which is not installed: "
                "install it, or leave the field out"
            ) from error
        self._directory = directory
        with _named("metrics.tensorboard", directory):
            self._writer = Writer(str(directory))

    def write(self, step: int, line: Mapping[str, object], scalars: Mapping[str, float]) -> None:  # noqa: ARG002
        """Add every number."""
        with _named("metrics.tensorboard", self._directory):
            for name, value in scalars.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        with _named("metrics.tensorboard", self._directory):
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
