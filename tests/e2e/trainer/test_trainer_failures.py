"""A job that cannot go on ends with a code and one line that names the rank and the cause."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from trainercrash.stage import Stage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as set_up:
        yield set_up


def last_words(stage: Stage) -> list[str]:
    return [line for line in stage.log().splitlines() if line.startswith("trainer: rank ")]


def test_a_server_that_stays_away_ends_the_job_and_is_named(stage: Stage) -> None:
    stage.kill_server()
    assert stage.train(2, "--data.patience_s=1") == 1, stage.log()
    [line] = [line for line in last_words(stage) if line.startswith("trainer: rank 0: ")]
    assert "UnavailableError" in line
    assert stage.endpoint in line
    assert "Traceback" in (stage.directory / "checkpoints" / "trainer-rank-0.log").read_text()


def test_another_order_under_the_runs_name_is_refused_by_name(stage: Stage) -> None:
    assert stage.train(1) == 0, stage.log()
    assert stage.train(1, "--run.order.seed=6") == 1, stage.log()
    [line] = last_words(stage)
    assert line.startswith("trainer: rank 0: RunConflictError: ")
    assert "seed" in line
