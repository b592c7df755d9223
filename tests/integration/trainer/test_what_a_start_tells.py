"""What rank 0 says, and refuses, before there is an attempt."""

from pathlib import Path

import pytest
from trainerlab.jobs import MemoryFeed, job_config, tiny_model

from trainer.checkpoint import Checkpoints
from trainer.errors import ModelError
from trainer.start import choose_start


@pytest.mark.parametrize(("context", "told"), [(23, True), (24, False)])
def test_samples_beyond_the_models_context_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, context: int, told: bool
) -> None:
    config = job_config(tmp_path, model={"config": tiny_model() | {"max_position_embeddings": context}})
    choose_start(config, MemoryFeed([]), Checkpoints(config.checkpoint.dir), "auto", take_over=False)
    assert (f"max_length = 24 is above the {context} positions of the model" in caplog.text) == told


class NoFeed(MemoryFeed):
    def create_run(self, vocab_size: int, *, wait_alive: bool = False) -> None:  # type: ignore[override]
        raise AssertionError("a run was created")


def test_a_model_that_cannot_be_trained_leaves_no_run_behind(tmp_path: Path) -> None:
    config = job_config(tmp_path, model={"config": tiny_model("gemma")})
    with pytest.raises(ModelError, match="gemma"):
        choose_start(config, NoFeed([]), Checkpoints(config.checkpoint.dir), "auto", take_over=False)
