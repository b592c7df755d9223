"""Engines and orchestrators that die in the middle of a transfer: training goes on, and no mix is served."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import runlab
from runlab import (
    RUN,
    STEPS,
    OrchestratorProcess,
    RunningOrchestrator,
    SmallTrainer,
    eventually,
    orchestrator_config,
    run_spec,
)

from dataserver.testing import RunningServer, running_server, write_store
from dataserver.weight_buckets import TensorSpec
from orchestrator.config import OrchestratorConfig
from orchestrator.results import EvalResult, open_results
from orchestrator.testing import FakeEngineProcess, Fault, running_fake_engine


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    store = write_store(tmp_path / "chat", lengths=[8] * 40)
    with running_server({"chat": store}, max_steps_ahead=0) as server:
        with SmallTrainer(server.endpoint, tmp_path).client as client:
            client.create_run(RUN, run_spec())
        yield server


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[FakeEngineProcess]:
    with FakeEngineProcess(tmp_path / "engine") as engine:
        yield engine
    assert engine.events("torn") == []
    assert engine.events("stale") == []


def config_of(folder: Path, engine: FakeEngineProcess, **fields: Any) -> OrchestratorConfig:
    """Evals here score by themselves."""
    plain = orchestrator_config(folder, {"one": engine.url}, **fields)
    evals = [{"scorer": {"kind": "exact"}} | plain.evals[0].model_dump(mode="json", exclude={"scorer", "environment"})]
    engines: list[dict[str, Any]] = [{"name": "one", "url": engine.url, "restart": engine.restart_command}]
    return OrchestratorConfig.model_validate(
        plain.model_dump(mode="json", exclude_defaults=True)
        | {"evals": [_without_nothing(each) for each in evals], "engines": engines}
    )


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nothing(field) for key, field in value.items() if field is not None}
    return value


def results(folder: Path) -> list[EvalResult]:
    table = open_results(f"sqlite:///{folder}/evals.db")
    try:
        return table.find(run=RUN)
    finally:
        table.close()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(call="finish", action="http_500"),
        pytest.param(Fault(call="pause", action="die"), marks=pytest.mark.slow),
        pytest.param(Fault(call="update", action="die", after_tensors=1), marks=pytest.mark.slow),
        pytest.param(Fault(call="finish", action="die", after=True), marks=pytest.mark.slow),
        pytest.param(Fault(call="resume", action="die"), marks=pytest.mark.slow),
    ],
    ids=lambda fault: f"{fault.call}-{fault.action}",
)
def test_an_engine_that_fails_in_a_sync_is_restarted_and_the_version_that_was_missed_retargeted(
    server: RunningServer, engine: FakeEngineProcess, tmp_path: Path, fault: Fault
) -> None:
    def hook(version: int) -> None:
        if version == 4:
            eventually(lambda: not orchestrator.running, "the first eval is over")
            pid.append(engine.pid)
            engine.fault(fault)
        if version == 5:
            # Whoever runs it starts it anew; then it waits to be synced.
            eventually(lambda: engine.pid != pid[0], "the engine is restarted")
            eventually(lambda: [m.state for m in orchestrator.members] == ["ready"], "the engine is back")
            eventually(lambda: bool(trainer.client.sync_state(RUN).holds), "the missed version is wanted")

    pid: list[int] = []
    trainer = SmallTrainer(server.endpoint, tmp_path, hook)
    with trainer.client, RunningOrchestrator(config_of(tmp_path, engine), server.endpoint) as orchestrator:
        eventually(lambda: bool(trainer.client.sync_state(RUN).holds), "the first eval is queued")
        trainer.train()
        assert orchestrator.ended()
    assert trainer.trained == list(range(1, STEPS + 1))
    assert 5 not in trainer.synced
    assert {0, 6, 10} <= set(trainer.synced)
    measured = [result.version.number for result in results(tmp_path)]
    # The first eval may begin on the version that lands next while it waits for its turn.
    assert measured[0] in {0, 1}
    assert measured[1:] == [6, 10]
    made = {each.version.number for result in results(tmp_path) for each in result.version_tokens if each.version}
    assert made <= set(trainer.synced)


def test_weights_of_another_shape_are_refused_before_an_engine_is_touched(
    server: RunningServer, tmp_path: Path
) -> None:
    runlab.scored.release(10)
    tensors = [TensorSpec(name="w", dtype="float32", shape=(5, 5))]
    trainer = SmallTrainer(server.endpoint, tmp_path)
    with running_fake_engine(tensors=tensors) as fake:
        config = orchestrator_config(tmp_path, {"one": fake.url})
        with trainer.client, RunningOrchestrator(config, server.endpoint) as orchestrator:
            eventually(lambda: bool(trainer.client.sync_state(RUN).holds), "the first eval is queued")
            trainer.train(stop_after=3)
            orchestrator.stop()
        assert trainer.trained == [1, 2, 3]
        assert trainer.outcomes
        assert all(outcome.endswith("skipped REFUSAL_REASON_MISMATCH") for outcome in trainer.outcomes[:1])
        assert not fake.engine.paused
        assert fake.engine.label == "default"


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["prepare", "send"])
def test_an_orchestrator_that_is_killed_in_a_sync_leaves_training_in_peace_and_its_successor_goes_on(
    server: RunningServer, engine: FakeEngineProcess, tmp_path: Path, phase: str
) -> None:
    # So long the second one waits.
    config = config_of(tmp_path, engine, pool={"health_every_s": 0.1, "lease_s": 5})
    orchestrators = [OrchestratorProcess(tmp_path, config, server.endpoint)]

    def during(now: str, version: int) -> None:
        if (now, version) == (phase, 5):
            orchestrators[0].kill()

    def hook(version: int) -> None:
        if version == 7:
            orchestrators.append(OrchestratorProcess(tmp_path, config, server.endpoint))
            eventually(
                lambda: (
                    (lease := trainer.client.sync_state(RUN).lease) is not None
                    and lease.orchestrator.epoch == 2
                    and bool(trainer.client.sync_state(RUN).holds)
                ),
                "the second one has the lease and wants what was missed",
            )

    trainer = SmallTrainer(server.endpoint, tmp_path, hook)
    trainer.during = during
    with trainer.client:
        try:
            eventually(lambda: bool(trainer.client.sync_state(RUN).holds), "the first eval is queued")
            trainer.train()
            assert orchestrators[1].process.wait(runlab.PATIENCE_S) == 0
        finally:
            for orchestrator in orchestrators:
                orchestrator.kill()
    assert trainer.trained == list(range(1, STEPS + 1))
    assert 5 not in trainer.synced
    assert trainer.synced[-1] == STEPS
    assert results(tmp_path)[-1].version.number == STEPS
