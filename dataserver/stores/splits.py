"""One split of a saved `DatasetDict`: a directory of it, and a store."""

import re
from pathlib import Path

from dataserver.errors import InvalidConfigError

# What `datasets` allows as the name of a split: above all no way out of the directory.
_SPLIT = re.compile(r"\w+(\.\w+)*")


def split_directory(where: Path | str, split: str) -> Path | str:
    """Where the split lies of what was saved at `where`, a directory or a URL; raises `InvalidConfigError`."""
    if not _SPLIT.fullmatch(split):
        raise InvalidConfigError(f"split = {split!r} is no name of a split: use letters, digits, '_', and '.' between")
    return where / split if isinstance(where, Path) else f"{where}/{split}"
