"""A run of ten steps, evaluated every five, with a real data server between trainer and orchestrator."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import runlab
from runlab import (
    RUN,
    STEPS,
    RunningOrchestrator,
    SmallTrainer,
    checksum_of,
    eventually,
    orchestrator_config,
    plain_weights,
    run_spec,
)

from dataserver.testing import RunningServer, running_server, write_store
from orchestrator.results import open_results
from orchestrator.testing import RunningFakeEngine, running_fake_engine

DUES = {0, 5, 10}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    store = write_store(tmp_path / "chat", lengths=[8] * 40)
    with running_server({"chat": store}, max_steps_ahead=0) as server:
        with SmallTrainer(server.endpoint, tmp_path).client as client:
            client.create_run(RUN, run_spec())
        yield server


@pytest.fixture
def fake() -> Iterator[RunningFakeEngine]:
    with running_fake_engine() as fake:
        yield fake
    assert fake.engine.events("torn") == fake.engine.events("stale") == fake.engine.events("refused") == []


@pytest.fixture(autouse=True)
def nobody_scores() -> Iterator[None]:
    """A test before this one may have let more evals end than there were."""
    while runlab.scored.acquire(blocking=False):
        pass
    yield
    runlab.scored.release(100)


class Rule:
    """The rule of sync.md, step by step: what is synced, and what the evals of `steps` steps measure."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.unmet = set(DUES)
        self.running: int | None = None
        self.newest = -1
        self.synced: list[int] = []
        self.measured: list[int] = []

    def seal(self, version: int) -> None:
        # The first step is sealed as soon as the stream is open, while the eval of version 0 is queued.
        if version in DUES or version == 1 or self.running is not None:
            self.synced.append(version)
            self.newest = version
            self.begin()

    def begin(self) -> None:
        if self.running is None and any(due <= self.newest for due in self.unmet):
            self.running = self.newest
            self.measured.append(self.newest)
            self.unmet = {due for due in self.unmet if due > self.newest}

    def ends(self, version: int) -> bool:
        """Whether the eval in flight ends after this version."""
        return self.running is not None and version - self.running >= self.steps

    def end(self) -> None:
        self.running = None
        self.begin()


def measured(folder: Path) -> list[int]:
    table = open_results(f"sqlite:///{folder}/evals.db")
    try:
        return [result.version.number for result in table.find(run=RUN)]
    finally:
        table.close()


@pytest.mark.parametrize("steps", [pytest.param(0, marks=pytest.mark.slow), 2, pytest.param(7, marks=pytest.mark.slow)])
def test_syncs_take_place_at_exactly_the_versions_that_evals_use(
    server: RunningServer, fake: RunningFakeEngine, tmp_path: Path, steps: int
) -> None:
    rule = Rule(steps)

    def as_the_rule_says(orchestrator: RunningOrchestrator, trainer: SmallTrainer) -> bool:
        held = bool(trainer.client.sync_state(RUN).holds)
        expected = [] if rule.running is None else [rule.running]
        return orchestrator.running == expected and held == (rule.running is not None)

    def hook(version: int) -> None:
        if version <= rule.newest:
            return
        if version == 0:
            eventually(lambda: trainer.client.sync_state(RUN).sealed_step == 1, "the first step is sealed")
        rule.seal(version)
        eventually(lambda: as_the_rule_says(orchestrator, trainer), f"{version}: {rule.running}")
        # While an eval holds, the run does not end.
        while rule.ends(version) or (version == STEPS and rule.running is not None):
            runlab.scored.release()
            rule.end()
            eventually(lambda: as_the_rule_says(orchestrator, trainer), f"{version}: then {rule.running}")

    trainer = SmallTrainer(server.endpoint, tmp_path, hook)
    config = orchestrator_config(tmp_path, {"one": fake.url})
    with RunningOrchestrator(config, server.endpoint) as orchestrator, trainer.client:
        eventually(lambda: bool(trainer.client.sync_state(RUN).holds), "the first eval is queued")
        trainer.train()
        runlab.scored.release(10)
        assert orchestrator.ended()
        assert trainer.synced == rule.synced
        if steps == 0:
            assert trainer.synced == trainer.stamped == [0, 1, 5, 10]
        assert trainer.client.sync_state(RUN).ended
    assert measured(tmp_path)[: len(rule.measured)] == rule.measured
    assert measured(tmp_path)[-1] == STEPS
    assert fake.engine.checksum == checksum_of(plain_weights(STEPS))


def test_training_notices_nothing_of_an_orchestrator_that_never_comes(server: RunningServer, tmp_path: Path) -> None:
    trainer = SmallTrainer(server.endpoint, tmp_path)
    with trainer.client:
        trainer.train()
        assert trainer.stamped == []
        assert trainer.client.sync_state(RUN).ended
        # One that comes after the end has nothing to do.
        with RunningOrchestrator(orchestrator_config(tmp_path, {"one": "http://127.0.0.1:9"}), server.endpoint) as late:
            assert late.ended()


def test_of_two_orchestrators_one_works_and_the_other_takes_over_when_it_goes(
    server: RunningServer, fake: RunningFakeEngine, tmp_path: Path
) -> None:
    runlab.scored.release(10)
    config = orchestrator_config(tmp_path, {"one": fake.url})
    epochs: list[int] = []

    def hook(version: int) -> None:
        lease = trainer.client.sync_state(RUN).lease
        assert lease is not None
        epochs.append(lease.orchestrator.epoch)
        if version == 3:
            first.stop()
            eventually(lambda: (lease := trainer.client.sync_state(RUN).lease) and lease.orchestrator.epoch == 2, "2")
            eventually(lambda: second._orchestrator._reign is not None, "the second reigns")

    trainer = SmallTrainer(server.endpoint, tmp_path, hook)
    with trainer.client, RunningOrchestrator(config, server.endpoint) as first:
        eventually(lambda: 10 in trainer.client.sync_state(RUN).requested, "versions are requested")
        with RunningOrchestrator(config, server.endpoint) as second:
            trainer.train()
            assert second.ended()
    assert {5, 10} <= set(trainer.synced)
    assert set(epochs) == {1, 2}
    assert measured(tmp_path)[-1] == STEPS
    assert trainer.trained == list(range(1, STEPS + 1))
