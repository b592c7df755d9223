"""Reading a configuration: defaults < TOML file < `--section.field=value` on the command line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dataserver.config_file import check_config, read_config
from trainer.config import TrainerConfig


def load_config(path: Path, overrides: Sequence[str] = ()) -> TrainerConfig:
    """Read a TOML file and lay `section.field=value` overrides over it; raises `InvalidConfigError`."""
    return read_config(TrainerConfig, path, overrides)


def parse_config(fields: Mapping[str, Any], origin: str) -> TrainerConfig:
    """Validate a configuration that came from `origin`; raises `InvalidConfigError`."""
    return check_config(TrainerConfig, fields, origin)
