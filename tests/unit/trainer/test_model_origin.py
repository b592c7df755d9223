"""Where a model comes from, and what is said when it is not there."""

from pathlib import Path

import pytest

from trainer.config import ModelConfig
from trainer.errors import ModelError
from trainer.model import model_config


@pytest.mark.parametrize("name", ["{here}/absent", "./absent", "../absent", "models/chat/absent"])
def test_a_path_without_a_directory_is_not_looked_for_on_the_hub(tmp_path: Path, name: str) -> None:
    path = name.format(here=tmp_path)
    with pytest.raises(ModelError) as refused:
        model_config(ModelConfig(path=path))
    assert str(refused.value) == f"model.path: there is no such directory: {path}"


def test_what_may_be_a_path_or_a_name_on_the_hub_is_said_to_be_neither() -> None:
    with pytest.raises(ModelError, match="model models/no such: there is no such directory here, and as a name on the"):
        model_config(ModelConfig(path="models/no such"))
