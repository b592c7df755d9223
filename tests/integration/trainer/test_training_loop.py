"""The loop: acks, figures, checkpoints, the end, and ranks that disagree."""

import json
from pathlib import Path
from typing import Any

import pytest
from trainerlab.jobs import MemoryFeed, job_config, tiny_model
from trainerlab.ranks import on_ranks
from trainerlab.samples import MemoryStep, Sample, deal, draw_samples

from trainer.checkpoint import Checkpoints
from trainer.config import TrainerConfig
from trainer.errors import CheckpointError
from trainer.launch import World


def steps(count: int, *, ranks: int = 2) -> list[list[MemoryStep]]:
    return [
        deal(draw_samples(5, seed=number), ranks=ranks, rounds=2, seed=number, number=number, last=number == count)
        for number in range(1, count + 1)
    ]


def train_and_tell(world: World, config: TrainerConfig, feed: MemoryFeed) -> MemoryFeed:
    from trainer.train import train

    train(config, world, feed)
    return feed


def figures(config: TrainerConfig) -> list[dict[str, Any]]:
    return [json.loads(line) for line in config.metrics.jsonl.read_text().splitlines()]


def test_a_run_acks_saves_commits_prunes_and_measures(tmp_path: Path) -> None:
    config = job_config(
        tmp_path,
        checkpoint={"dir": str(tmp_path / "checkpoints"), "every_steps": 2, "keep_last": 2},
        optim={"lr": 1e-2, "schedule": "linear", "warmup_steps": 2, "total_steps": 5},
    )
    first, _ = on_ranks(2, train_and_tell, config, MemoryFeed(steps(5)))
    assert first.begun == [None]
    assert [(attempt, step) for attempt, step, _ in first.commits] == [(1, 2), (1, 4), (1, 5)]
    assert [found.record.step for found in Checkpoints(config.checkpoint.dir).complete()] == [4, 5]
    assert first.commits[-1][2] == (config.checkpoint.dir / "step-00000005-attempt-1").as_uri()
    told = figures(config)
    assert [line["step"] for line in told] == [1, 2, 3, 4, 5]
    assert [line["lr"] for line in told] == pytest.approx([0.005, 0.01, 0.007, 0.004, 0.001])
    assert all(line["samples"] == 5 and line["rounds"] == 2 and line["tokens"] > 0 for line in told)
    assert all(4.0 < line["loss"] < 5.5 and line["grad_norm"] > 0 for line in told)
    assert json.loads((config.checkpoint.dir / "config-attempt-1.json").read_text())["run"]["name"] == "chat"


def test_the_loss_falls_on_samples_that_repeat(tmp_path: Path) -> None:
    config = job_config(tmp_path)
    samples = draw_samples(5, seed=1)
    again = [deal(samples, ranks=2, rounds=1, seed=0, number=number, last=number == 20) for number in range(1, 21)]
    on_ranks(2, train_and_tell, config, MemoryFeed(again))
    losses = [line["loss"] for line in figures(config)]
    assert losses[-1] < losses[0] / 3


def test_a_step_without_targets_is_a_step_all_the_same(tmp_path: Path) -> None:
    config = job_config(tmp_path)
    silent = [Sample(tokens=sample.tokens, mask=sample.mask & False) for sample in draw_samples(3, seed=0)]
    feed = MemoryFeed([deal(silent, ranks=2, rounds=2, seed=0, number=1, last=True)])
    first, _ = on_ranks(2, train_and_tell, config, feed)
    [line] = figures(config)
    assert (line["loss"], line["grad_norm"], line["targets"]) == (0.0, 0.0, 0)
    assert [step for _, step, _ in first.commits] == [1]


def expect_error(world: World, config: TrainerConfig, feeds: list[MemoryFeed]) -> str:
    from trainer.errors import TrainerError
    from trainer.train import train

    try:
        train(config, world, feeds[world.rank])
    except TrainerError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("plan_digest", "another", "step 2, plan another, sync_weights False on ranks [1]"),
        ("sync_weights", True, "step 2, plan plan, sync_weights True on ranks [1]"),
        ("number", 3, "step 3, plan plan, sync_weights False on ranks [1]"),
    ],
)
def test_ranks_that_disagree_end_the_job_with_both_values(tmp_path: Path, field: str, value: object, told: str) -> None:
    ours, theirs = steps(3), steps(3)
    setattr(theirs[1][1], field, value)
    outcomes = on_ranks(2, expect_error, job_config(tmp_path), [MemoryFeed(ours), MemoryFeed(theirs)])
    for outcome in outcomes:
        assert outcome.startswith("RanksDisagreeError")
        assert told in outcome
        assert "step 2, plan plan, sync_weights False on ranks [0]" in outcome
    assert Checkpoints(tmp_path / "checkpoints").complete() == []


def test_a_rank_whose_run_ends_earlier_does_not_leave_the_others_hanging(tmp_path: Path) -> None:
    longer = [deal(draw_samples(5, seed=number), ranks=2, rounds=2, seed=number, number=number) for number in (1, 2)]
    outcomes = on_ranks(2, expect_error, job_config(tmp_path), [MemoryFeed(longer), MemoryFeed(longer[:1])])
    assert all("end of run on ranks [1]" in outcome for outcome in outcomes)


def explode(world: World, config: TrainerConfig, feed: MemoryFeed) -> tuple[str, bool]:
    """Train with a weight that is not a number."""
    import torch

    from trainer import train as loop
    from trainer.errors import NonFiniteError

    real, before = loop.build, {}

    def poisoned(*arguments: Any) -> Any:
        model, optimizer = real(*arguments)
        with torch.no_grad():
            next(model.parameters()).to_local().fill_(float("nan"))
        before.update({name: weight.to_local().clone() for name, weight in model.named_parameters()})
        before["model"] = model
        return model, optimizer

    loop.build = poisoned
    try:
        loop.train(config, world, feed)
    except NonFiniteError as error:
        model = before.pop("model")
        same = all(
            torch.equal(weight.to_local().nan_to_num(), before[name].nan_to_num())
            for name, weight in model.named_parameters()
        )
        return str(error), same
    return "no error", False


def test_a_gradient_that_is_not_a_number_changes_no_weight(tmp_path: Path) -> None:
    for told, same in on_ranks(2, explode, job_config(tmp_path), MemoryFeed(steps(2))):
        assert "step 1: the gradient's norm is nan" in told
        assert same


def test_checkpoints_stay_until_a_newer_one_is_known_to_the_ledger(tmp_path: Path) -> None:
    config = job_config(tmp_path, checkpoint={"dir": str(tmp_path / "checkpoints"), "every_steps": 1, "keep_last": 1})
    on_ranks(1, train_and_tell, config, MemoryFeed(steps(3, ranks=1), commits_arrive=False))
    kept = [checkpoint.record.step for checkpoint in Checkpoints(config.checkpoint.dir).complete()]
    assert kept == [1, 2, 3]


def export_and_compare(world: World, config: TrainerConfig, feed: MemoryFeed, model_type: str) -> tuple[float, str]:
    """Largest difference of logits between the trained model and what transformers loads from the export."""
    import torch
    from transformers import AutoModelForCausalLM

    from trainer.checkpoint import Checkpoints
    from trainer.train import build, train

    train(config, world, feed)
    [checkpoint] = Checkpoints(config.checkpoint.dir).complete()
    trained, _ = build(config, world, checkpoint)
    loaded = AutoModelForCausalLM.from_pretrained(config.checkpoint.export_dir)
    assert loaded.config.model_type == model_type
    tokens = torch.arange(1, 20).unsqueeze(0)
    bounds = torch.tensor([0, 19], dtype=torch.int32)
    ours = trained(input_ids=tokens, use_cache=False, cu_seq_lens_q=bounds, max_length_q=19).logits
    return float((loaded(tokens).logits - ours).abs().max()), str(loaded.dtype)


@pytest.mark.parametrize(("model_type", "tied"), [("qwen3", True), ("llama", False)])
def test_an_exported_model_loads_with_the_same_logits(tmp_path: Path, model_type: str, tied: bool) -> None:
    config = job_config(
        tmp_path,
        model={"config": tiny_model(model_type, tied=tied)},
        checkpoint={"dir": str(tmp_path / "checkpoints"), "export_dir": str(tmp_path / "model")},
    )
    [(difference, dtype)] = on_ranks(1, export_and_compare, config, MemoryFeed(steps(3, ranks=1)), model_type)
    assert difference < 1e-6
    assert dtype == "torch.float32"
    assert {path.name for path in (tmp_path / "model").iterdir()} >= {"config.json", "model.safetensors"}
    assert "packed" not in (tmp_path / "model" / "config.json").read_text()


def weights_from(world: World, config: TrainerConfig) -> bool:
    import torch

    from trainer.model import full_weights, model_config
    from trainer.train import build

    given = full_weights(config.model, model_config(config.model))
    model, _ = build(config, world, None)
    return all(torch.equal(weight.full_tensor(), given[name]) for name, weight in model.named_parameters())


def test_training_goes_on_from_an_exported_directory(tmp_path: Path) -> None:
    config = job_config(
        tmp_path, checkpoint={"dir": str(tmp_path / "checkpoints"), "export_dir": str(tmp_path / "model")}
    )
    on_ranks(1, train_and_tell, config, MemoryFeed(steps(1, ranks=1)))
    onward = job_config(tmp_path, model={"path": str(tmp_path / "model"), "config": None})
    assert on_ranks(2, weights_from, onward) == [True, True]


def test_a_job_that_is_started_again_after_its_export_finds_it_there(tmp_path: Path) -> None:
    config = job_config(
        tmp_path, checkpoint={"dir": str(tmp_path / "checkpoints"), "export_dir": str(tmp_path / "model")}
    )
    on_ranks(1, train_and_tell, config, MemoryFeed(steps(2, ranks=1)))
    exported = (tmp_path / "model" / "model.safetensors").stat()
    on_ranks(1, train_and_tell, config, MemoryFeed(steps(2, ranks=1)))
    assert (tmp_path / "model" / "model.safetensors").stat() == exported
    on_ranks(1, train_and_tell, config, MemoryFeed(steps(3, ranks=1)))
    assert (tmp_path / "model" / "model.safetensors").stat().st_ino != exported.st_ino


def refusal(world: World, config: TrainerConfig, feed: MemoryFeed) -> tuple[str, int]:
    from trainer.train import train

    with pytest.raises(CheckpointError) as refused:
        train(config, world, feed)
    return str(refused.value), len(feed.begun)


def test_an_export_directory_with_something_else_in_it_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "thesis.txt").write_text("irreplaceable")
    config = job_config(
        tmp_path, checkpoint={"dir": str(tmp_path / "checkpoints"), "export_dir": str(tmp_path / "model")}
    )
    [(told, attempts)] = on_ranks(1, refusal, config, MemoryFeed(steps(1, ranks=1)))
    assert "something else than an export of this run" in told
    assert attempts == 0
    assert (tmp_path / "model" / "thesis.txt").read_text() == "irreplaceable"


def test_an_export_that_cannot_be_written_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    config = job_config(
        tmp_path, checkpoint={"dir": str(tmp_path / "checkpoints"), "export_dir": str(tmp_path / "file" / "model")}
    )
    [(told, attempts)] = on_ranks(1, refusal, config, MemoryFeed(steps(1, ranks=1)))
    assert f"the export {tmp_path}/file/model cannot be written" in told
    assert attempts == 0
    assert (tmp_path / "file").read_text() == "in the way"
