"""The configuration in docs/evals.md is one."""

import re
import tomllib
from pathlib import Path

from orchestrator.config import OrchestratorConfig

DOC = Path(__file__).resolve().parents[3] / "docs" / "evals.md"


def test_the_configuration_that_the_page_shows_is_accepted():
    [text, _environment] = re.findall(r"```toml\n(.*?)```", DOC.read_text(), flags=re.DOTALL)
    config = OrchestratorConfig.model_validate(tomllib.loads(text))
    assert [(each.name, each.pin, each.scorer.kind) for each in config.evals] == [
        ("reverse", False, "exact"),
        ("sums", True, "numeric"),
    ]
