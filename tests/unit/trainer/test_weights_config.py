"""What `[weights]` refuses, with the way out in the text."""

from typing import Any

import pytest
from pydantic import ValidationError

from dataserver.errors import InvalidConfigError
from trainer.config_file import parse_config
from trainer.weights_config import WeightsConfig

GUARD = {"tls": {"certificate": "c", "key": "k"}, "token_file": "t"}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"transport": "filesystem"}, "'filesystem' needs one"),
        ({"transport": "gloo", "directory": "weights"}, "the others have none"),
        ({"transport": "filesystem", "directory": "hf://models/weights"}, "a directory that ranks and engines share"),
        ({"transport": "carrier pigeon"}, "filesystem"),
        ({"transport": "gloo", "listen": "10.0.0.7:0"}, "set tls and token_file"),
        ({"transport": "gloo", "listen": "10.0.0.7:0", **GUARD}, "asks nobody who joins"),
        ({"transport": "filesystem", "directory": "w", "listen": "10.0.0.7:0", "token_file": "t"}, "tls is not set"),
        ({"transport": "gloo", "listen": "0.0.0.0:0", "insecure": True}, "set advertise_host"),
        ({"transport": "gloo", "listen": "nowhere"}, "HOST:PORT"),
        ({"transport": "gloo", "prepare_s": 0}, "greater than 0"),
        ({"transport": "gloo", "dtype": "int4"}, "fp16"),
    ],
)
def test_what_cannot_work_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        WeightsConfig.model_validate(fields)
    assert told in str(refused.value)


@pytest.mark.parametrize("url", ["s3://bucket/weights", "gs://bucket/weights", "az://container/weights"])
def test_the_url_of_an_object_storage_is_left_as_it_is_and_its_calls_are_waited_for(url: str) -> None:
    objects = WeightsConfig(transport="filesystem", directory=url)
    assert objects.directory == url
    assert objects.longest_wait_s > WeightsConfig(transport="filesystem", directory="w").longest_wait_s


def test_the_storages_part_in_the_wait_is_counted_and_told() -> None:
    weights = {"transport": "filesystem", "directory": "s3://bucket/weights"}
    with pytest.raises(InvalidConfigError, match=r"must be above 875, .* and 240 for the object storage"):
        parse_config(job({"dir": "checkpoints"}, weights) | {"parallel": {"collective_timeout_s": 875}}, "test")


def test_where_rank_0_is_called_is_where_it_listens_unless_told() -> None:
    assert WeightsConfig(transport="gloo").called_host == "127.0.0.1"
    open_to_all = {"listen": "0.0.0.0:7000", "insecure": True, "advertise_host": "node7"}
    assert WeightsConfig(transport="gloo", **open_to_all).called_host == "node7"


def test_with_tls_and_a_token_rank_0_is_reached_from_everywhere_where_no_group_is() -> None:
    exposed = {"transport": "filesystem", "directory": "w", "listen": "10.0.0.7:7000", **GUARD}
    assert WeightsConfig.model_validate(exposed).called_host == "10.0.0.7"


def test_deadlines_that_would_end_the_job_as_a_hang_are_refused() -> None:
    weights = {"transport": "gloo", "send_s": 400}
    with pytest.raises(InvalidConfigError, match="must be above 735, prepare_s"):
        parse_config(job({"dir": "checkpoints"}, weights) | {"parallel": {"collective_timeout_s": 700}}, "test")


@pytest.mark.parametrize("field", ["dir", "export_dir"])
@pytest.mark.parametrize("kept", ["/scratch/runs/chat", "/scratch/runs/chat/kept", "/scratch/runs", "/scratch/"])
def test_checkpoints_and_exports_lie_apart_from_what_is_deleted(field: str, kept: str) -> None:
    weights = {"transport": "filesystem", "directory": "/scratch/runs"}
    with pytest.raises(InvalidConfigError, match=rf"checkpoint\.{field} = .*give weights\.directory a directory"):
        parse_config(job({"dir": "/elsewhere", field: kept}, weights), "test")
    parse_config(job({"dir": "/elsewhere", field: "/scratch/runs/chat-2"}, weights), "test")


def job(checkpoint: dict[str, Any], weights: dict[str, Any]) -> dict[str, Any]:
    batch = {"step_samples": 8, "micro_batch_tokens": 64}
    order = {"sources": [{"store": "chat"}], "max_length": 8}
    run = {"name": "chat", "order": order, "batch": batch}
    return {"run": run, "model": {"path": "model"}, "checkpoint": checkpoint, "weights": weights}
