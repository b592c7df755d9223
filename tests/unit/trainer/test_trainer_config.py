"""A trainer's configuration: where values come from, and what is refused."""

from pathlib import Path

import pytest

from dataserver.errors import InvalidConfigError
from dataserver.run_spec import PackingPolicy
from trainer.config import Precision, ScheduleKind, TrainerConfig
from trainer.config_file import load_config

MINIMAL = """
[run]
name = "chat"
order = { max_length = 64, sources = [{ store = "chat" }] }
batch = { step_samples = 8, micro_batch_tokens = 128, max_steps = 10 }
[model]
path = "models/tiny"
[checkpoint]
dir = "checkpoints"
[optim]
lr = 0.25
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.toml"
    path.write_text(MINIMAL)
    return path


def test_flags_win_over_the_file_and_the_file_over_defaults(file: Path) -> None:
    config = load_config(file, ["optim.beta1=0.5", "run.batch.max_steps=7"])
    assert (config.optim.lr, config.optim.beta1, config.optim.beta2) == (0.25, 0.5, 0.95)
    assert config.run.batch.max_steps == 7
    assert config.run.batch.step_samples == 8


def test_a_refusal_is_in_our_words_alone(file: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r": run\.batch: give exactly one of step_tokens, step_samples"):
        load_config(file, ["run.batch.step_tokens=256"])


def test_an_override_takes_toml_words_and_none(file: Path) -> None:
    config = load_config(
        file,
        [
            "model.dtype=bf16",
            "optim.clip_norm=none",
            'run.order.sources=[{store="a"}, {store="b"}]',
            "metrics.jsonl=out/metrics.jsonl",
            "model.activation_checkpointing=true",
        ],
    )
    assert config.model.dtype is Precision.BF16
    assert config.optim.clip_norm is None
    assert [source.store for source in config.run.order.sources] == ["a", "b"]
    assert config.metrics.jsonl == Path("out/metrics.jsonl")
    assert config.model.activation_checkpointing


def test_none_is_a_word_where_a_field_knows_it(file: Path) -> None:
    batch = load_config(file, ["run.batch.policy=none", "run.batch.pad_to=none"]).run.batch
    assert (batch.policy, batch.pad_to) == (PackingPolicy.NONE, 0)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["optim.speed=3"], "optim.speed"),
        (["optim.lr=-1"], "optim.lr"),
        (["optim.lr=inf"], "finite number"),
        (["optim.weight_decay=nan"], "finite number"),
        (["data.wait_alive_s=inf"], "finite number"),
        (["model.config={model_type='qwen3'}"], "exactly one of path and config"),
        (["model.path=none", "model.config={vocab_size=3}"], "model_type"),
        (["run.batch.micro_batch_tokens=32"], "micro_batch_tokens = 32"),
        (["run.batch.max_steps=none", "optim.schedule=cosine"], "must know its end"),
        (["data.patience_s=5000"], "collective_timeout_s"),
        (["checkpoint.dir="], "names no directory"),
        (["checkpoint.export_dir="], "names no directory"),
        (["lr=3"], "not of the form"),
        (["optim.lr"], "not of the form"),
        (["optim.lr.x=3"], "is a value, not a section"),
    ],
)
def test_what_cannot_be_is_refused_by_name(file: Path, overrides: list[str], told: str) -> None:
    with pytest.raises(InvalidConfigError, match=told) as refused:
        load_config(file, overrides)
    assert "Value error" not in str(refused.value), "that is a word of pydantic's"


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("run.nam=x", "--run.nam=x: there is no such field as run.nam"),
        ("rum.name=x", "--rum.name=x: there is no such field as rum"),
        ("optim.lr=-1", "--optim.lr=-1: optim.lr: Input should be greater than 0 (got -1)"),
        ("run.order.sources=[{}]", "--run.order.sources=[{}]: run.order.sources.0.store: Field required (got {})"),
    ],
)
def test_a_fault_of_a_flag_is_not_blamed_on_the_file(file: Path, override: str, told: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        load_config(file, ["optim.beta1=0.5", override])
    assert str(refused.value).startswith(told)


def test_a_fault_of_the_file_is_not_blamed_on_a_flag(file: Path) -> None:
    file.write_text(MINIMAL + "spede = 3\n")
    with pytest.raises(InvalidConfigError) as refused:
        load_config(file, ["optim.lr=0.5"])
    assert str(refused.value) == f"{file}: there is no such field as optim.spede"


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"absent\.toml"):
        load_config(tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("[run")
    with pytest.raises(InvalidConfigError, match=r"broken\.toml"):
        load_config(tmp_path / "broken.toml")


def test_a_decay_ends_with_the_run_unless_told_otherwise(file: Path) -> None:
    assert load_config(file, ["optim.schedule=linear"]).schedule_steps == 10
    assert load_config(file, ["optim.schedule=linear", "optim.total_steps=30"]).schedule_steps == 30


def test_every_field_is_documented() -> None:
    def fields(model: type) -> list[str]:
        found = []
        for name, field in model.model_fields.items():
            found += [name] if not field.description else []
            inner = field.annotation
            found += fields(inner) if hasattr(inner, "model_fields") else []
        return found

    assert fields(TrainerConfig) == []


def test_the_resolved_configuration_reads_back_as_itself(file: Path) -> None:
    config = load_config(file, ["optim.schedule=cosine"])
    assert config.optim.schedule is ScheduleKind.COSINE
    assert TrainerConfig.model_validate(config.model_dump(mode="json")) == config
