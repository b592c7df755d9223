"""A step's figures reach every sink that is configured."""

import io
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from dataserver.errors import InvalidConfigError
from dataserver.sinks import MetricsConfig
from trainer.metrics import EvalFigures, Screen, StepFigures, open_metrics

if TYPE_CHECKING:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

FIGURES = StepFigures(
    attempt=2,
    step=12,
    epoch=0,
    loss=3.25,
    lr=1e-3,
    grad_norm=0.5,
    step_s=0.25,
    data_wait_s=0.002,
    tokens_per_s=4096.0,
    tokens=1024,
    targets=600,
    samples=8,
    rounds=2,
    empty_micro_batches=1,
    padding=0,
    sync_weights=False,
)

EVALUATION = EvalFigures(attempt=2, step=12, eval_loss=3.5, eval_targets=1200, eval_samples=30, eval_s=0.5)


def test_a_step_is_one_line_on_the_screen() -> None:
    out = io.StringIO()
    Screen(40, out).write(FIGURES)
    assert out.getvalue() == (
        "step 12/40  loss 3.2500  lr 1.00e-03  |g| 0.500  4,096 tok/s  8 samples  600 targets  2 rounds  "
        "wait 0.002 s  step 0.25 s\n"
    )


def test_a_file_that_takes_no_more_is_named() -> None:
    metrics = open_metrics(MetricsConfig(jsonl=Path("/dev/full")), run="chat", last_step=None, resolved={})
    with (
        metrics,
        pytest.raises(InvalidConfigError, match=r"metrics\.jsonl = '/dev/full' cannot be written: No space left"),
    ):
        metrics.write(EVALUATION)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=rf"metrics\.jsonl = '{tmp_path}' cannot be written: Is a directory"):
        open_metrics(MetricsConfig(jsonl=tmp_path), run="chat", last_step=None, resolved={})


def test_what_follows_half_a_line_stands_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st')
    for _ in range(2):
        with open_metrics(MetricsConfig(jsonl=path), run="chat", last_step=None, resolved={}) as metrics:
            metrics.write(EVALUATION)
    assert path.read_text().splitlines()[:2] == ['{"step": 1}', '{"st']
    assert [json.loads(line) for line in path.read_text().splitlines()[2:]] == [asdict(EVALUATION)] * 2


def test_an_evaluation_is_a_line_and_an_object_of_its_own(tmp_path: Path) -> None:
    out = io.StringIO()
    Screen(40, out).write(EVALUATION)
    assert out.getvalue() == "step 12/40  eval loss 3.5000  30 samples  1,200 targets  0.50 s\n"
    path = tmp_path / "metrics.jsonl"
    with open_metrics(MetricsConfig(jsonl=path), run="chat", last_step=None, resolved={}) as metrics:
        metrics.write(EVALUATION)
    assert json.loads(path.read_text()) == asdict(EVALUATION)


def test_json_lines_go_on_in_the_same_file_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "out" / "metrics.jsonl"
    for figures in (FIGURES, replace(FIGURES, attempt=3, step=13)):
        with open_metrics(MetricsConfig(jsonl=path), run="chat", last_step=None, resolved={}) as metrics:
            metrics.write(figures)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [asdict(FIGURES), asdict(FIGURES) | {"attempt": 3, "step": 13}]


def test_tensorboard_holds_every_figure_at_its_step(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with open_metrics(MetricsConfig(tensorboard=tmp_path), run="chat", last_step=None, resolved={}) as metrics:
        metrics.write(FIGURES)
        metrics.write(EVALUATION)
    events = EventAccumulator(str(tmp_path)).Reload()
    of_the_step = {f"train/{name}" for name in asdict(FIGURES) if name != "step"}
    of_the_evaluation = {f"eval/{name}" for name in ("attempt", "loss", "targets", "samples", "s")}
    assert set(events.Tags()["tensors"]) == of_the_step | of_the_evaluation
    assert scalars(events, "eval/loss") == [(12, 3.5)]
    assert scalars(events, "train/loss") == [(12, 3.25)]


def test_a_directory_of_tensorboard_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    config = MetricsConfig(tensorboard=tmp_path / "file" / "events")
    with pytest.raises(InvalidConfigError, match=r"metrics\.tensorboard = '.*/file/events' cannot be written"):
        open_metrics(config, run="chat", last_step=None, resolved={})


def scalars(events: "EventAccumulator", name: str) -> list[tuple[int, float]]:
    return [(event.step, event.tensor_proto.float_val[0]) for event in events.Tensors(name)]


def test_a_missing_wandb_is_said_before_training_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InvalidConfigError, match=r"wandb_project = 'mine' needs the package wandb"):
        open_metrics(MetricsConfig(wandb_project="mine"), run="chat", last_step=None, resolved={})


class FakeRun:
    """What a run of Weights & Biases was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def define_metric(self, name: str, step_metric: str) -> None:
        self.told.append((name, step_metric))

    def log(self, numbers: dict[str, float]) -> None:
        self.told.append(numbers)

    def finish(self) -> None:
        self.told.append("finished")


def test_weights_and_biases_are_told_the_step_as_a_number_for_it_may_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    run, begun = FakeRun(), []
    library = ModuleType("wandb")
    library.init = lambda **fields: begun.append(fields) or run  # type: ignore[attr-defined, func-returns-value]
    monkeypatch.setitem(sys.modules, "wandb", library)
    with open_metrics(MetricsConfig(wandb_project="mine"), run="chat", last_step=None, resolved={"a": 1}) as metrics:
        metrics.write(EVALUATION)
    numbers = {"eval/attempt": 2.0, "eval/loss": 3.5, "eval/targets": 1200.0, "eval/samples": 30.0, "eval/s": 0.5}
    assert begun == [{"project": "mine", "name": "chat", "config": {"a": 1}}]
    assert run.told == [("*", "step"), {"step": 12, **numbers}, "finished"]
