"""What `[weights]` refuses, with the way out in the text."""

from typing import Any

import pytest
from pydantic import ValidationError

from dataserver.errors import InvalidConfigError
from trainer.config_file import parse_config
from trainer.weights_config import WeightsConfig


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"transport": "filesystem"}, "'filesystem' needs one"),
        ({"transport": "gloo", "directory": "weights"}, "the others have none"),
        ({"transport": "carrier pigeon"}, "filesystem"),
        ({"transport": "gloo", "listen": "10.0.0.7:0"}, "or say insecure"),
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


def test_where_rank_0_is_called_is_where_it_listens_unless_told() -> None:
    assert WeightsConfig(transport="gloo").called_host == "127.0.0.1"
    open_to_all = {"listen": "0.0.0.0:7000", "insecure": True, "advertise_host": "node7"}
    assert WeightsConfig(transport="gloo", **open_to_all).called_host == "node7"


def test_deadlines_that_would_end_the_job_as_a_hang_are_refused() -> None:
    fields = {
        "run": {
            "name": "chat",
            "order": {"sources": [{"store": "chat"}], "max_length": 8},
            "batch": {"step_samples": 8, "micro_batch_tokens": 64},
        },
        "model": {"path": "model"},
        "checkpoint": {"dir": "checkpoints"},
        "parallel": {"collective_timeout_s": 700},
        "weights": {"transport": "gloo", "send_s": 400},
    }
    with pytest.raises(InvalidConfigError, match="must be above 735, prepare_s"):
        parse_config(fields, "test")
