"""A job that stops and resumes is the job that never stopped, at any number of ranks."""

import hashlib
import os
import re
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainerlab.jobs import MemoryFeed, job_config, tiny_model
from trainerlab.ranks import RankFailedError, on_ranks
from trainerlab.samples import MemoryStep, deal, draw_samples

from trainer.checkpoint import Checkpoint, Checkpoints, read_checkpoint
from trainer.config import TrainerConfig
from trainer.launch import World

STEPS = 6


def run_steps(ranks: int, count: int = STEPS) -> list[list[MemoryStep]]:
    """The same samples in every step, whatever the number of ranks."""
    return [
        deal(draw_samples(9, seed=number), ranks=ranks, rounds=2, seed=number, number=number, last=number == count)
        for number in range(1, count + 1)
    ]


def weights_digest(job_model: Any, optimizer: Any) -> str:
    """Of every weight and moment, to the bit."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    model, moments = get_state_dict(job_model, optimizer, options=StateDictOptions(full_state_dict=True))
    digest = hashlib.sha256()
    for name, weight in sorted(model.items()):
        digest.update(name.encode() + weight.numpy().tobytes())
    for name, state in sorted(moments["state"].items()):
        digest.update(name.encode() + b"".join(value.numpy().tobytes() for _, value in sorted(state.items())))
    return digest.hexdigest()


def train_all(world: World, config: TrainerConfig, feed: MemoryFeed, resume: Any) -> MemoryFeed:
    from trainer.train import train

    train(config, world, feed, resume=resume)
    return feed


def loaded_digest(world: World, config: TrainerConfig, checkpoint: Checkpoint) -> tuple[str, dict[str, np.ndarray]]:
    from trainer.train import build

    model, optimizer = build(config, world, checkpoint)
    whole = {name: weight.detach().full_tensor().numpy() for name, weight in model.named_parameters()}
    return weights_digest(model, optimizer), whole


def train_to(directory: Path, ranks: int, *, count: int = STEPS, resume: Any = "auto", replicas: int = 1) -> Checkpoint:
    """Train to step `count` with checkpoints every 2 steps; the newest checkpoint."""
    checkpoint = {"dir": str(directory / "checkpoints"), "every_steps": 2}
    config = job_config(directory, checkpoint=checkpoint, parallel={"replicas": replicas})
    on_ranks(ranks, train_all, config, MemoryFeed(run_steps(ranks, count)), resume)
    return Checkpoints(config.checkpoint.dir).complete()[-1]


def digest_of(directory: Path, ranks: int, checkpoint: Checkpoint) -> str:
    digests = {digest for digest, _ in on_ranks(ranks, loaded_digest, job_config(directory), checkpoint)}
    assert len(digests) == 1
    return digests.pop()


def weights_of(directory: Path, checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    [(_, weights)] = on_ranks(1, loaded_digest, job_config(directory), checkpoint)
    return weights


@pytest.mark.slow
def test_a_resumed_job_equals_the_uninterrupted_one_to_the_bit(tmp_path: Path) -> None:
    straight = train_to(tmp_path / "straight", 2)
    train_to(tmp_path / "broken", 2, count=2)
    train_to(tmp_path / "broken", 2, count=4)
    broken = train_to(tmp_path / "broken", 2)
    assert (straight.record.step, broken.record.step) == (STEPS, STEPS)
    assert broken.record.cursor == straight.record.cursor
    assert digest_of(tmp_path, 2, broken) == digest_of(tmp_path, 2, straight)


@pytest.mark.slow
def test_a_checkpoint_of_two_ranks_goes_on_at_one_and_then_at_two_replicas_of_two(tmp_path: Path) -> None:
    straight = train_to(tmp_path / "straight", 2)
    train_to(tmp_path / "moved", 2, count=2)
    train_to(tmp_path / "moved", 1, count=4)
    moved = train_to(tmp_path / "moved", 4, replicas=2)
    assert (moved.record.step, moved.record.world_size) == (STEPS, 4)
    expected, found = weights_of(tmp_path, straight), weights_of(tmp_path, moved)
    for name, weight in expected.items():
        np.testing.assert_allclose(found[name], weight, rtol=0, atol=2e-4, err_msg=name)


def test_state_is_the_same_bits_at_every_number_of_ranks(tmp_path: Path) -> None:
    checkpoint = train_to(tmp_path, 2, count=2)
    assert len({digest_of(tmp_path, ranks, checkpoint) for ranks in (1, 2, 4)}) == 1


def refusals(world: World, tries: list[tuple[TrainerConfig, Checkpoint]]) -> list[str]:
    from trainer.errors import CheckpointError
    from trainer.train import build

    told = []
    for config, checkpoint in tries:
        with pytest.raises(CheckpointError) as refused:
            build(config, world, checkpoint)
        told.append(str(refused.value))
    return told


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    checkpoint = train_to(tmp_path, 1, count=2)
    others = [job_config(tmp_path, model={"config": tiny_model() | {"num_hidden_layers": n}}) for n in (1, 3)]
    [[smaller, larger]] = on_ranks(1, refusals, [(other, checkpoint) for other in others])
    assert f"{checkpoint.path} is of another model: 11 of its weights are not in the model, and 0 of" in smaller
    assert "0 of its weights are not in the model, and 11 of the model's are not in it" in larger


def test_a_checkpoint_with_a_flipped_bit_is_refused_on_all_ranks_and_not_exported(tmp_path: Path) -> None:
    from trainer.errors import CheckpointError
    from trainer.export import export_checkpoint

    whole = train_to(tmp_path, 2, count=2)
    copies = {}
    for name in ("__0_0.distcp", "__1_0.distcp", ".metadata"):
        copies[name] = shutil.copytree(whole.path, tmp_path / name / whole.path.name)
        changed = bytearray((copies[name] / name).read_bytes())
        changed[len(changed) // 2] ^= 0x40
        (copies[name] / name).write_bytes(changed)
    told = [
        f"the checkpoint {path} is damaged: the files __{writer}_* that rank {writer} wrote"
        for path, writer in zip(copies.values(), (0, 1, 0), strict=True)
    ]
    for refused in on_ranks(3, refusals, [(job_config(tmp_path), read_checkpoint(path)) for path in copies.values()]):
        for text, expected in zip(refused, told, strict=True):
            assert expected in text
    for path, expected in zip(copies.values(), told, strict=True):
        with pytest.raises(CheckpointError, match=re.escape(expected)):
            export_checkpoint(path, tmp_path / "export")
    assert not (tmp_path / "export").exists()


def save_with_a_full_disk(world: World, config: TrainerConfig, feed: MemoryFeed) -> str:
    """Train until a file would grow beyond what the first checkpoint could have used."""
    from trainer.errors import CheckpointError
    from trainer.train import train

    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    try:
        train(config, world, feed)
    except CheckpointError as error:
        return str(error)
    return "no error"


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    before = train_to(tmp_path, 2, count=2)
    digest = digest_of(tmp_path, 2, before)
    config = job_config(tmp_path, metrics={"jsonl": None})
    for told in on_ranks(2, save_with_a_full_disk, config, MemoryFeed(run_steps(2))):
        assert "cannot write the checkpoint of step 6" in told
        assert "File too large" in told
        assert "bytes are free" in told
        assert "Traceback" not in told
    assert [found.path for found in Checkpoints(config.checkpoint.dir).complete()] == [before.path]
    assert digest_of(tmp_path, 2, before) == digest


def die_before(world: World, config: TrainerConfig, feed: MemoryFeed, call: str) -> None:
    """Kill every rank at its second `call` while a checkpoint is written."""
    from trainer import checkpoint, state
    from trainer.train import train

    module, name = {"save": (state, "save"), "write": (checkpoint, "write_durably")}.get(call, (Path, "rename"))
    real, seen = getattr(module, name), []

    def fatal(*arguments: Any, **named: Any) -> Any:
        if module is not Path or arguments[0].name.startswith(".step-"):
            seen.append(name)
            if len(seen) == 2:
                if call == "save":
                    real(*arguments, **named)
                os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)

    setattr(module, name, fatal)
    train(config, world, feed)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["save", "write", "rename"])
def test_ranks_killed_inside_a_save_leave_the_checkpoint_before(tmp_path: Path, call: str) -> None:
    config = job_config(tmp_path, checkpoint={"dir": str(tmp_path / "checkpoints"), "every_steps": 2})
    with pytest.raises(RankFailedError, match="died without a word"):
        on_ranks(2, die_before, config, MemoryFeed(run_steps(2)), call)
    [survivor] = Checkpoints(config.checkpoint.dir).complete()
    assert survivor.record.step == 2
    assert list(config.checkpoint.dir.glob(".step-00000004-attempt-1.uid.tmp"))
    resumed = train_to(tmp_path, 2)
    assert resumed.record.step == STEPS
    assert digest_of(tmp_path, 2, resumed) == digest_of(tmp_path, 2, train_to(tmp_path / "straight", 2))


def test_the_record_says_what_the_weights_are(tmp_path: Path) -> None:
    checkpoint = train_to(tmp_path, 2, count=2)
    record = read_checkpoint(checkpoint.path).record
    assert (record.run, record.run_uid, record.attempt, record.step, record.world_size) == ("chat", "uid", 1, 2, 2)
    assert record.config["optim"]["lr"] == 1e-2
