"""Weights without a model: which rows went into which step, in shards, saved atomically with the cursor."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

from dataserver.cursor import Cursor


class Consumed(NamedTuple):
    """One sample that an optimizer step used."""

    step: int
    row: int


class Checkpoint(NamedTuple):
    """What a checkpoint holds, all shards together."""

    path: Path
    cursor: Cursor
    consumed: list[Consumed]

    def shard(self, rank: int, world_size: int) -> list[Consumed]:
        """The part that `rank` of `world_size` carries on, as a resharding load would deal it."""
        return self.consumed[rank::world_size]


class Checkpoints:
    """Checkpoints in a directory: shards under a temporary name that carries the attempt, then one rename."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def write_shard(self, attempt: int, step: int, rank: int, consumed: list[Consumed]) -> None:
        temporary = self._temporary(attempt, step)
        temporary.mkdir(exist_ok=True)
        (temporary / f"rank-{rank}.json").write_text(json.dumps(consumed))

    def publish(self, attempt: int, cursor: Cursor) -> Path:
        """Make the shards and `cursor` one checkpoint."""
        temporary = self._temporary(attempt, cursor.step)
        (temporary / "cursor.json").write_text(cursor.to_json())
        final = self.path(cursor.step)
        if final.exists():  # an abandoned future's, after a resume from an older version
            shutil.rmtree(final)
        temporary.rename(final)
        return final

    def path(self, step: int) -> Path:
        return self.directory / f"step-{step}"

    def latest(self) -> Checkpoint | None:
        steps = [int(path.name.removeprefix("step-")) for path in self.directory.glob("step-*")]
        return self.load(max(steps)) if steps else None

    def load(self, step: int) -> Checkpoint:
        path = self.path(step)
        cursor = Cursor.from_json((path / "cursor.json").read_text())
        consumed = [
            Consumed(*item) for shard in sorted(path.glob("rank-*.json")) for item in json.loads(shard.read_text())
        ]
        return Checkpoint(path, cursor, consumed)

    def _temporary(self, attempt: int, step: int) -> Path:
        return self.directory / f"tmp-{attempt}-{step}"
