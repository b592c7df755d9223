"""The jobs under deploy/ say what their programs understand: every file parses, every flag and every address fits."""

import os
import re
import tomllib
from pathlib import Path

import pytest

from dataserver.config import ServerConfig
from deploy.launcher.job import load_job
from orchestrator.config import OrchestratorConfig
from trainer.config import TrainerConfig
from trainer.config_file import load_config

DEPLOY = Path(__file__).parents[3] / "deploy"
PLACES = (DEPLOY / "local", DEPLOY / "kubernetes" / "config")
NODES = {"NODE_0": "node-0", "NODE_1": "node-1", "SLURM_JOB_ID": "7"}


def read(path: Path) -> dict[str, object]:
    return tomllib.loads(path.read_text())


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.parts[-2])
def test_configurations_are_valid_and_of_one_run(place: Path) -> None:
    ServerConfig.model_validate(read(place / "server.toml"))
    trainer = TrainerConfig.model_validate(read(place / "train.toml"))
    orchestrator = OrchestratorConfig.model_validate(read(place / "orchestrator.toml"))
    assert trainer.run.name == orchestrator.run.name
    assert trainer.weights is not None
    assert trainer.weights.transport == orchestrator.weights.transport
    stores = {source.store for source in trainer.run.order.sources}
    assert stores <= set(read(place / "server.toml")["stores"])


@pytest.mark.parametrize("path", [DEPLOY / "local" / "job.toml", DEPLOY / "slurm" / "several-nodes.toml"], ids=str)
def test_a_job_names_files_that_are_there_and_engines_that_the_orchestrator_knows(path: Path) -> None:
    job = load_job(path)
    words = {name: process.words(NODES) for name, process in job.processes.items()}
    files = [word for command in words.values() for word in " ".join(command).split() if word.endswith(".toml")]
    assert len(files) == 3
    assert [name for name in files if not (path.parent / name).is_file()] == []
    orchestrator = OrchestratorConfig.model_validate(read(DEPLOY / "local" / "orchestrator.toml"))
    ports = {name: f"http://127.0.0.1:{port_of(command)}" for name, command in words.items() if "vllm" in command}
    assert {engine.name: engine.url for engine in orchestrator.engines} == ports
    assert [engine.restart for engine in orchestrator.engines] == [("launcher", "restart", name) for name in ports]


def port_of(command: list[str]) -> str:
    return command[command.index("--port") + 1]


def test_the_flags_of_several_nodes_are_fields() -> None:
    text = (DEPLOY / "slurm" / "several-nodes.toml").read_text()
    overrides = re.findall(r"--([a-z]+\.[a-z_.]+=[^\s']+)", text)
    weights = [override for override in overrides if override.startswith("weights.")]
    config = load_config(DEPLOY / "local" / "train.toml", weights)
    assert config.weights is not None
    assert config.weights.listen == "0.0.0.0:0"
    fields = OrchestratorConfig.model_fields["serve"].annotation.model_fields
    assert {override.partition("=")[0].removeprefix("serve.") for override in set(overrides) - set(weights)} <= set(
        fields
    )


def test_the_batch_script_is_for_everybody_to_run() -> None:
    script = DEPLOY / "slurm" / "job.sbatch"
    assert script.read_text().startswith("#!/bin/bash\n")
    assert os.access(script, os.X_OK)
