"""Eight cells of the crash matrix with real FSDP under torchrun: every sample of the epoch is consumed exactly once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from trainercrash.stage import LIMIT_S, STEPS, Stage

from dataserver.client import DataClient


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as set_up:
        yield set_up


pytestmark = pytest.mark.timeout(1200)


@pytest.mark.slow
def test_one_of_two_ranks_is_killed_mid_step_and_one_rank_goes_on(stage: Stage) -> None:
    assert stage.train(2, fault={"at": "after_backward", "step": 4, "rank": 1}) != 0, stage.log()
    assert [found.record.step for found in stage.checkpoints()] == [2], stage.log()
    assert stage.train(1) == 0, stage.log()
    stage.prove_exactly_once()


@pytest.mark.slow
def test_a_node_of_two_is_lost_twice_and_one_node_goes_on(stage: Stage) -> None:
    codes = stage.train_on_two_nodes(rendezvous=False, fault={"at": "after_backward", "step": 4, "rank": 1})
    assert 0 not in codes, stage.log()
    assert [found.record.step for found in stage.checkpoints()] == [2], stage.log()
    codes = stage.train_on_two_nodes(rendezvous=True, fault={"at": "before_ack", "step": 5, "rank": 0})
    assert 0 not in codes, stage.log()
    assert stage.train(1) == 0, stage.log()
    written = [(found.record.attempt, found.record.world_size) for found in stage.checkpoints()]
    assert written == [(1, 2), (2, 2), (3, 1), (3, 1)], stage.log()
    stage.prove_exactly_once()


@pytest.mark.slow
def test_all_ranks_are_killed_inside_a_checkpoint(stage: Stage) -> None:
    assert stage.train(2, fault={"at": "inside_save", "step": 4, "rank": -1}) != 0, stage.log()
    assert [found.record.step for found in stage.checkpoints()] == [2], stage.log()
    assert stage.train(2) == 0, stage.log()
    stage.prove_exactly_once()


@pytest.mark.slow
def test_the_server_is_killed_mid_stream_and_training_goes_on_when_it_is_back(stage: Stage) -> None:
    pid = stage.server.pid
    with stage.start(2, fault={"at": "before_ack", "step": 3, "rank": 0, "server": pid, "dies": False}) as trainer:
        stage.wait_for_step(3)
        stage.server.wait()
        stage.serve()
        assert trainer.wait(LIMIT_S) == 0, stage.log()
    stage.prove_exactly_once()
    assert {found.record.attempt for found in stage.checkpoints()} == {1}


@pytest.mark.slow
def test_server_and_trainer_are_killed_between_checkpoint_and_commit(stage: Stage) -> None:
    pid = stage.server.pid
    assert stage.train(1, fault={"at": "before_commit", "step": 4, "rank": 0, "server": pid}) != 0, stage.log()
    stage.serve()
    with DataClient(stage.endpoint) as client:
        assert client.get_run("chat").committed.step == 2
    assert [found.record.step for found in stage.checkpoints()] == [2, 4], stage.log()
    assert stage.train(2) == 0, stage.log()
    stage.prove_exactly_once()


@pytest.mark.slow
def test_the_second_resume_goes_on_where_the_second_save_was(stage: Stage) -> None:
    assert stage.train(1, fault={"at": "before_ack", "step": 3, "rank": 0}) != 0, stage.log()
    assert stage.train(2, fault={"at": "before_ack", "step": 5, "rank": 1}) != 0, stage.log()
    assert [(found.record.step, found.record.attempt) for found in stage.checkpoints()] == [(2, 1), (4, 2)], stage.log()
    assert stage.train(1) == 0, stage.log()
    stage.prove_exactly_once()


@pytest.mark.slow
def test_a_rank_is_killed_right_after_the_commit_and_three_ranks_go_on(stage: Stage) -> None:
    assert stage.train(2, fault={"at": "after_commit", "step": 4, "rank": 0}) != 0, stage.log()
    assert stage.train(3) == 0, stage.log()
    stage.prove_exactly_once()


@pytest.mark.slow
def test_after_a_rewind_a_named_checkpoint_is_gone_on_from(stage: Stage) -> None:
    assert stage.train(2, fault={"at": "before_ack", "step": 7, "rank": 0}) != 0, stage.log()
    with DataClient(stage.endpoint) as client:
        assert client.rewind_run("chat", 2).committed.step == 2
    [second] = [found.path for found in stage.checkpoints() if found.record.step == 2]
    assert stage.train(1, "--resume", str(second), fault={"at": "before_ack", "step": 3, "rank": 0}) != 0, stage.log()
    # `auto` does not go back to the checkpoints of steps 4 and 6, which the rewind abandoned.
    assert stage.train(2) == 0, stage.log()
    stage.prove_exactly_once()
    assert (4, 4) in [(found.record.step, found.record.attempt) for found in stage.checkpoints()]


@pytest.mark.slow
def test_a_rank_that_has_finished_the_last_step_exits_in_peace_though_the_server_is_gone(stage: Stage) -> None:
    pid = stage.server.pid
    assert stage.train(2, fault={"at": "before_ack", "step": STEPS, "rank": 0, "server": pid, "dies": False}) == 0, (
        stage.log()
    )
    assert stage.checkpoints()[-1].record.step == STEPS
    stage.serve()
    with DataClient(stage.endpoint) as client:
        assert client.get_run("chat").committed.step == STEPS - 2
    # The lost commit is made up for by the next attempt, which has nothing left to do.
    assert stage.train(1) == 0, stage.log()
    with DataClient(stage.endpoint) as client:
        assert client.get_run("chat").committed.step == STEPS
