"""What a trainer says when it ends."""

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import pytest
from trainerlab.jobs import MemoryFeed, job_config
from trainerlab.ranks import on_ranks
from trainerlab.samples import MemoryStep, deal, draw_samples

from trainer.config import TrainerConfig
from trainer.launch import World

CONFIG = """
[run]
name = "chat"
order = { max_length = 64, sources = [{ store = "chat" }] }
batch = { step_samples = 8, micro_batch_tokens = 128 }
[model]
config = { model_type = "qwen3", vocab_size = 96 }
[checkpoint]
dir = "checkpoints"
[parallel]
device = "cpu"
"""


def two_steps() -> list[list[MemoryStep]]:
    samples = draw_samples(4, seed=0)
    return [deal(samples, ranks=1, rounds=1, seed=0, number=number, last=number == 2) for number in (1, 2)]


def train_and_listen(world: World, config: TrainerConfig, feed: MemoryFeed) -> list[str]:
    from trainer.train import log, train

    texts: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    log.setLevel(logging.INFO)
    log.addHandler(Listener())
    train(config, world, feed)
    return texts


def test_the_end_names_checkpoint_and_export_and_a_second_start_has_nothing_to_do(tmp_path: Path) -> None:
    directory, export = tmp_path / "checkpoints", tmp_path / "model"
    config = job_config(tmp_path, checkpoint={"dir": str(directory), "export_dir": str(export)})
    [first] = on_ranks(1, train_and_listen, config, MemoryFeed(two_steps()))
    [again] = on_ranks(1, train_and_listen, config, MemoryFeed(two_steps()))
    newest = directory / "step-00000002-attempt-1"
    assert first == [f"run chat ended; newest checkpoint: {newest}", f"exported to {export}"]
    assert again == ["run chat ended at step 2; nothing left to do", f"exported to {export}"]


@contextmanager
def waiting_trainer(directory: Path) -> "Iterator[tuple[subprocess.Popen[str], IO[str], str]]":
    """A lone rank that waits for a server, as nobody listens on port 1; what it says next, and has said of threads."""
    (directory / "train.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "trainer", "train.toml", "--data-endpoint", "127.0.0.1:1"]
    with subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, text=True) as trainer:
        assert trainer.stderr is not None
        told = next(line for line in trainer.stderr if "torch computes with" in line)
        yield trainer, trainer.stderr, told


@pytest.mark.timeout(120)
def test_a_lone_rank_tells_its_threads_and_an_interrupt_is_called_one(tmp_path: Path) -> None:
    with waiting_trainer(tmp_path) as (trainer, stderr, told):
        assert "OMP_NUM_THREADS sets how many" in told
        trainer.send_signal(signal.SIGINT)
        last = stderr.read().splitlines()[-1]
    assert last.startswith("trainer: rank 0: interrupted [trace: ")
    assert trainer.returncode == 1


@pytest.mark.timeout(120)
def test_a_rank_that_native_code_ends_says_where_it_was(tmp_path: Path) -> None:
    with waiting_trainer(tmp_path) as (trainer, stderr, _):
        trainer.send_signal(signal.SIGABRT)
        last = stderr.read()
    assert "Fatal Python error: Aborted" in last
    assert "in run_job" in last
    assert trainer.returncode == -signal.SIGABRT


def cause_of_a_reduction(group: Any) -> str:
    """What a rank says of one that fails."""
    import torch
    import torch.distributed as dist

    from trainer.cli import cause_of

    with pytest.raises(RuntimeError) as raised:
        dist.all_reduce(torch.ones(1), group=group)
    return cause_of(raised.value)


def wait_in_vain(world: World) -> str | None:
    import torch.distributed as dist

    group = dist.new_group(timeout=timedelta(seconds=1))
    return cause_of_a_reduction(group) if world.is_first else None


def test_who_waits_for_another_rank_in_vain_says_so() -> None:
    told, _ = on_ranks(2, wait_in_vain)
    assert told.startswith("RuntimeError: ")
    assert told.endswith("; another rank did not come within parallel.collective_timeout_s: it hangs or is stopped")


def meet_one_who_left(world: World) -> str | None:
    import torch.distributed as dist

    group = dist.new_group()
    dist.barrier(group)
    if not world.is_first:
        dist.destroy_process_group(group)
        return None
    return cause_of_a_reduction(group)


def test_who_meets_a_rank_that_is_gone_says_where_to_look() -> None:
    told, _ = on_ranks(2, meet_one_who_left)
    assert told.startswith("RuntimeError: ")
    assert told.endswith("; another rank ended: why stands in its own line or log")


# What it leaves behind aborts when Python's end frees it, as a thread of gloo may.
DONE = """
import os, sys
from trainer.cli import end_rank
class Left:
    def __del__(self, abort=os.abort):
        abort()
sys.modules["left"] = Left()
print("done")
end_rank(0)
"""


def test_a_rank_that_is_done_is_not_failed_by_what_python_frees_at_its_end() -> None:
    ended = subprocess.run([sys.executable, "-c", DONE], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "done\n")
