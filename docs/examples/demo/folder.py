"""The demo's folder: what lies where, and that only one demo at a time uses it."""

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from processes import DemoError

Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Where the demo's things lie."""

    root: Path

    @property
    def store(self) -> Path:
        """The store."""
        return self.root / "store"

    @property
    def records(self) -> Path:
        """What the ranks trained on."""
        return self.root / "records"

    @property
    def metrics(self) -> Path:
        """Figures of every step, one JSON object a line."""
        return self.root / "metrics.jsonl"

    @property
    def picture(self) -> Path:
        """The loss."""
        return self.root / "loss.png"

    def figures(self) -> list[Figures]:
        """What the trainer wrote of its steps so far; a line that is being written is left out."""
        lines = self.metrics.read_text().split("\n")[:-1] if self.metrics.exists() else []
        return [json.loads(line) for line in lines]


@contextmanager
def empty_folder(root: Path) -> Iterator[Folder]:
    """The folder, emptied, and nobody else's until the end of the block.

    Raises `DemoError` when it holds something that no demo made, or when another demo uses it.
    """
    marker = root / ".demo"
    if root.exists() and any(root.iterdir()) and not marker.exists():
        raise DemoError(f"{root} holds something that the demo did not make; move it away")
    root.mkdir(parents=True, exist_ok=True)
    with marker.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DemoError(f"another demo is running in {root}") from error
        for path in root.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != marker:
                path.unlink()
        folder = Folder(root=root)
        folder.records.mkdir()
        yield folder
