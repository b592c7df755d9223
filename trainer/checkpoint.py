"""Checkpoints as directories: complete or not there.

    DIR/.step-00000012-attempt-3.tmp/   being written
    DIR/step-00000012-attempt-3/        complete
        __0_0.distcp ... .metadata      weights and optimizer state, sharded
        trainer.json                    cursor, run, attempt, configuration, sizes of the files above

The commit is one rename, after everything in the directory has been flushed to disk; there is
no marker to forget. On a filesystem shared by several nodes each rank flushes what it wrote
before it tells rank 0, and the rename is one operation of the file server (POSIX, NFS, Lustre),
so no node ever sees half of it. The temporary name carries the attempt: a displaced trainer
that is still writing cannot touch the files of the one that follows.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from dataserver.cursor import Cursor
from dataserver.errors import InvalidRequestError
from trainer.errors import CheckpointError

Resume = Literal["auto", "none"] | Path
"""Which checkpoint to go on from: the newest, none, or this one."""

RECORD_FILE: Final = "trainer.json"
FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What stands beside the weights. `config` is the resolved configuration as JSON values."""

    run: str
    run_uid: str
    attempt: int
    world_size: int
    cursor: Cursor
    config: Mapping[str, Any]

    @property
    def step(self) -> int:
        """Optimizer steps in the weights."""
        return self.cursor.step

    @property
    def name(self) -> str:
        """Name of the checkpoint's directory."""
        return f"step-{self.step:08d}-attempt-{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint."""

    path: Path
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Which checkpoints belong to a run as it stands.

    The run was last begun, or rewound, at step `base_step` under attempt number `attempt`; what
    lower attempts did after that step is abandoned, though its files may still lie there.
    """

    run: str
    run_uid: str
    order_fingerprint: str
    attempt: int
    base_step: int

    def holds(self, record: Record) -> bool:
        """Whether the run as it stands came by this checkpoint, or lies behind it."""
        return record.attempt >= self.attempt or record.step <= self.base_step


class Checkpoints:
    """The checkpoints of one directory."""

    def __init__(self, directory: Path, *, keep_last: int = 1, keep_every: int | None = None) -> None:
        self.directory = directory
        self._keep_last = keep_last
        self._keep_every = keep_every

    def complete(self) -> list[Checkpoint]:
        """All complete checkpoints, the newest last."""
        found = [read_checkpoint(path) for path in self.directory.glob("step-*-attempt-*")]
        return sorted(found, key=lambda checkpoint: (checkpoint.record.step, checkpoint.record.attempt))

    def choose(self, resume: Resume, lineage: Lineage) -> Checkpoint | None:
        """The checkpoint to go on from; None for a fresh start.

        Raises `CheckpointError` when it is not there, or of another order, or when the directory
        belongs to another run. A checkpoint that is named may be another run's of the same order.
        """
        if isinstance(resume, Path):
            checkpoint = read_checkpoint(resume)
            _check_order(checkpoint, lineage)
            return checkpoint
        found = self.complete()
        for checkpoint in found:
            _check_run(checkpoint, lineage)
            _check_order(checkpoint, lineage)
        if resume == "none":
            return None
        return next((checkpoint for checkpoint in reversed(found) if lineage.holds(checkpoint.record)), None)

    def temporary(self, record: Record) -> Path:
        """Where the ranks write a checkpoint before it is complete."""
        return self.directory / f".{record.name}.tmp"

    def begin(self, record: Record) -> Path:
        """Make the temporary directory of a checkpoint, empty."""
        temporary = self.temporary(record)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        return temporary

    def commit(self, temporary: Path, record: Record) -> Path:
        """Add the record to what the ranks wrote and flushed, and make the checkpoint visible at once."""
        sizes = {file.name: file.stat().st_size for file in temporary.iterdir()}
        _write_flushed(temporary / RECORD_FILE, _to_json(record, sizes))
        _flush_directory(temporary)
        path = self.directory / record.name
        # Only a ledger restored from an older copy issues an attempt number twice.
        discard(path)
        temporary.rename(path)
        _flush_directory(self.directory)
        return path.absolute()

    def prune(self, run_uid: str) -> list[Path]:
        """Remove the run's checkpoints that no rule keeps; returns them. The newest is always kept."""
        ours = [checkpoint for checkpoint in self.complete() if checkpoint.record.run_uid == run_uid]
        by_age = sorted(ours, key=lambda checkpoint: (checkpoint.record.attempt, checkpoint.record.step))
        newest = {checkpoint.path for checkpoint in [*by_age[-self._keep_last :], *ours[-self._keep_last :]]}
        removed = [
            checkpoint.path
            for checkpoint in ours
            if checkpoint.path not in newest and not self._kept_for_good(checkpoint.record)
        ]
        for path in removed:
            discard(path)
        return removed

    def sweep(self, attempt: int) -> None:
        """Remove what attempts below `attempt` left unfinished."""
        for temporary in self.directory.glob(".step-*-attempt-*.tmp"):
            number = temporary.name.removesuffix(".tmp").rpartition("-")[2]
            if number.isdecimal() and int(number) < attempt:
                shutil.rmtree(temporary, ignore_errors=True)

    def _kept_for_good(self, record: Record) -> bool:
        return self._keep_every is not None and record.step % self._keep_every == 0


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint's record, and check that its files are all there.

    Raises `CheckpointError` naming what is missing.
    """
    try:
        fields = json.loads((path / RECORD_FILE).read_text())
        if fields["format"] != FORMAT:
            raise CheckpointError(f"{path}: format {fields['format']}; this trainer reads format {FORMAT}")
        for name, size in fields["files"].items():
            actual = (path / name).stat().st_size
            if actual != size:
                raise CheckpointError(f"{path}: {name} holds {actual} bytes, {size} were written")
        record = Record(
            run=fields["run"],
            run_uid=fields["run_uid"],
            attempt=fields["attempt"],
            world_size=fields["world_size"],
            cursor=Cursor.from_json(json.dumps(fields["cursor"])),
            config=fields["config"],
        )
    except (OSError, ValueError, KeyError, TypeError, InvalidRequestError) as error:
        raise CheckpointError(
            f"{path} is no complete checkpoint ({error}); remove it, or name another with --resume PATH"
        ) from error
    return Checkpoint(path=path.absolute(), record=record)


def discard(path: Path) -> None:
    """Remove a checkpoint so that it is never seen half removed."""
    if path.exists():
        trash = path.with_name(f".{path.name}.removed")
        shutil.rmtree(trash, ignore_errors=True)
        path.rename(trash)
        shutil.rmtree(trash)


def _check_order(checkpoint: Checkpoint, lineage: Lineage) -> None:
    record = checkpoint.record
    if record.cursor.order_fingerprint != lineage.order_fingerprint:
        raise CheckpointError(
            f"{checkpoint.path} belongs to another order than run {lineage.run!r}: its fingerprint is "
            f"{record.cursor.order_fingerprint}, the run's {lineage.order_fingerprint}; "
            "restore the sources, seed and stores, or use another checkpoint.dir"
        )


def _check_run(checkpoint: Checkpoint, lineage: Lineage) -> None:
    record = checkpoint.record
    if (record.run, record.run_uid) != (lineage.run, lineage.run_uid):
        raise CheckpointError(
            f"{checkpoint.path} belongs to run {record.run!r} ({record.run_uid}), not to {lineage.run!r} "
            f"({lineage.run_uid}): use another checkpoint.dir, or --resume {checkpoint.path} to go on from it"
        )


def _to_json(record: Record, sizes: Mapping[str, int]) -> str:
    fields = {
        "format": FORMAT,
        "run": record.run,
        "run_uid": record.run_uid,
        "attempt": record.attempt,
        "step": record.step,
        "world_size": record.world_size,
        "cursor": json.loads(record.cursor.to_json()),
        "config": record.config,
        "files": sizes,
    }
    return json.dumps(fields, indent=2) + "\n"


def _write_flushed(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
