"""Reading a configuration: defaults < TOML file < `--section.field=value` on the command line."""

from collections.abc import Sequence
from pathlib import Path

from dataserver.config_file import read_config
from orchestrator.config import OrchestratorConfig


def load_config(path: Path, overrides: Sequence[str] = ()) -> OrchestratorConfig:
    """Read a TOML file and lay `section.field=value` overrides over it; raises `InvalidConfigError`."""
    return read_config(OrchestratorConfig, path, overrides)
