"""The real package of Weights & Biases, offline: what trainer and orchestrator tell it is in its file."""

import json
from pathlib import Path
from typing import Any

import pytest

from dataserver.sinks import MetricsConfig, open_sinks
from trainer.metrics import EvalFigures, open_metrics

OFFLINE = MetricsConfig(wandb_project="mine")
FIGURES = EvalFigures(attempt=2, step=12, eval_loss=3.5, eval_targets=1200, eval_samples=30, eval_s=0.5)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the package writes, and nowhere else."""
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true", "ERROR_REPORTING": "false"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    return tmp_path


def told(directory: Path) -> tuple[Any, list[dict[str, float]]]:
    """The run of the only file, and the numbers that were logged in it; ends the package's own process."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    wandb.teardown()  # before it the file may not be whole
    [path] = (directory / "wandb" / "latest-run").glob("*.wandb")
    store, run, logged = DataStore(), None, []
    store.open_for_scan(str(path))
    while (data := store.scan_data()) is not None:
        record = Record.FromString(data)
        if record.HasField("run"):
            run = record.run
        if record.HasField("history"):
            items = {".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            logged.append({name: value for name, value in items.items() if not name.startswith("_")})
    store._fp.close()
    return run, logged


@pytest.mark.slow
def test_a_trainer_writes_to_weights_and_biases(directory: Path) -> None:
    with open_metrics(OFFLINE, run="chat", last_step=None, resolved={"seed": 7}) as metrics:
        metrics.write(FIGURES)
    run, logged = told(directory)
    assert (run.project, run.display_name) == ("mine", "chat")
    assert ("seed", "7") in [(item.key, item.value_json) for item in run.config.update]
    figures = {"eval/attempt": 2, "eval/loss": 3.5, "eval/targets": 1200, "eval/samples": 30, "eval/s": 0.5}
    assert logged == [{"step": 12} | figures]


@pytest.mark.slow
def test_an_orchestrator_writes_to_weights_and_biases_versions_that_go_back_too(directory: Path) -> None:
    [sink] = open_sinks(OFFLINE, run="chat-evals", resolved={})
    for version in (20, 10):
        sink.write(version, {"name": "reverse"}, {"eval/reverse/mean": 0.25})
    sink.close()
    run, logged = told(directory)
    assert run.display_name == "chat-evals"
    assert logged == [{"step": version, "eval/reverse/mean": 0.25} for version in (20, 10)]
