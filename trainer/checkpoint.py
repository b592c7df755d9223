"""Checkpoints as directories: complete or not there.

    DIR/.step-00000012-attempt-3.RUN_UID.tmp/   being written
    DIR/step-00000012-attempt-3/                complete
        __0_0.distcp ... .metadata      weights and optimizer state, sharded
        trainer.json                    cursor, run, attempt, configuration, sizes and digests of the files above

The commit is one rename, after everything in the directory has been flushed to disk; there is
no marker to forget. On a filesystem shared by several nodes each rank flushes what it wrote
before it tells rank 0, and the rename is one operation of the file server (POSIX, NFS, Lustre),
so no node ever sees half of it. The temporary name carries run and attempt: a displaced
trainer that is still writing cannot touch the files of the one that follows, nor one run another's.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from dataserver.cursor import Cursor
from dataserver.durable import flush_to_disk, write_durably
from dataserver.errors import InvalidRequestError
from trainer.errors import CheckpointError

Resume = Literal["auto", "none"] | Path
"""Which checkpoint to go on from: the newest, none, or this one."""

RECORD_FILE: Final = "trainer.json"
FORMAT: Final = 2
_REMOVED: Final = ".removed"


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
    """A complete checkpoint. `digests`: of what each rank wrote, in their order, as `digests.digest_of`."""

    path: Path
    record: Record
    digests: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Which checkpoints belong to a run as it stands.

    The run was last begun, or rewound, at step `base_step` under attempt number `attempt`; what
    lower attempts did after that step is abandoned, though its files may still lie there. A checkpoint's cursor
    has the fingerprint of one of the run's stages.
    """

    run: str
    run_uid: str
    order_fingerprints: tuple[str, ...]
    attempt: int
    base_step: int

    def holds(self, record: Record) -> bool:
        """Whether the run as it stands came by this checkpoint, or lies behind it."""
        return record.attempt >= self.attempt or record.step <= self.base_step


class Checkpoints:
    """The checkpoints of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def paths(self) -> list[Path]:
        """What is named like a complete checkpoint, in no order."""
        return list(self.directory.glob("step-*-attempt-*"))

    def unfinished(self, run_uid: str) -> list[Path]:
        """What the run is writing, or left when it crashed."""
        return list(self.directory.glob(f".step-*-attempt-*.{run_uid}.tmp"))

    def discarded(self) -> list[Path]:
        """What was to be removed and is still there."""
        return list(self.directory.glob(f".step-*-attempt-*{_REMOVED}"))

    def complete(self) -> list[Checkpoint]:
        """All complete checkpoints, the newest last; raises `CheckpointError` when one cannot be read."""
        return sorted((read_checkpoint(path) for path in self.paths()), key=by_step)

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
        for checkpoint in reversed(found):  # the newest is named first
            _check_run(checkpoint, lineage)
            _check_order(checkpoint, lineage)
        if resume == "none":
            return None
        return next((checkpoint for checkpoint in reversed(found) if lineage.holds(checkpoint.record)), None)

    def temporary(self, record: Record) -> Path:
        """Where the ranks write a checkpoint before it is complete."""
        return self.directory / f".{record.name}.{record.run_uid}.tmp"

    def begin(self, record: Record) -> Path:
        """Make the temporary directory of a checkpoint, empty."""
        temporary = self.temporary(record)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        return temporary

    def commit(self, temporary: Path, record: Record, digests: Sequence[int]) -> Path:
        """Add the record to what the ranks wrote and flushed, and make the checkpoint visible at once.

        Raises `CheckpointError` when another run's checkpoint is in the way: two runs share the directory.
        """
        path = self.directory / record.name
        if path.exists():
            _check_replaceable(read_checkpoint(path), record)
        sizes = {file.name: file.stat().st_size for file in temporary.iterdir()}
        write_durably(temporary / RECORD_FILE, _to_json(record, sizes, digests).encode())
        flush_to_disk(temporary)
        # Only a ledger restored from an older copy issues an attempt number twice.
        discard(path)
        temporary.rename(path)
        flush_to_disk(self.directory)
        return path.absolute()


def by_step(checkpoint: Checkpoint) -> tuple[int, int]:
    """Sorts checkpoints by what they hold: step, then attempt."""
    return checkpoint.record.step, checkpoint.record.attempt


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
        digests = tuple(map(int, fields["digests"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InvalidRequestError) as error:
        raise CheckpointError(f"{path} is no complete checkpoint ({error}); remove it, or name another one") from error
    return Checkpoint(path=path.absolute(), record=record, digests=digests)


def discard(path: Path) -> None:
    """Remove a checkpoint so that it is never seen half removed.

    What cannot be deleted, as a file that somebody has open on NFS, stays under another name. Raises `OSError`.
    """
    if path.exists():
        trash = path.with_name(f".{path.name}{_REMOVED}")
        shutil.rmtree(trash, ignore_errors=True)
        path.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)


def _check_order(checkpoint: Checkpoint, lineage: Lineage) -> None:
    record = checkpoint.record
    if record.cursor.order_fingerprint not in lineage.order_fingerprints:
        raise CheckpointError(
            f"{checkpoint.path} belongs to another order than run {lineage.run!r}: its fingerprint is "
            f"{record.cursor.order_fingerprint}, the run's {' and '.join(lineage.order_fingerprints)}; "
            "restore the sources, seed and stores, or use another checkpoint.dir"
        )


def _check_run(checkpoint: Checkpoint, lineage: Lineage) -> None:
    record = checkpoint.record
    if (record.run, record.run_uid) != (lineage.run, lineage.run_uid):
        raise CheckpointError(
            f"{checkpoint.path} belongs to run {record.run!r} ({record.run_uid}), not to {lineage.run!r} "
            f"({lineage.run_uid}): use another checkpoint.dir, or --resume {checkpoint.path} to go on from it"
        )


def _check_replaceable(there: Checkpoint, record: Record) -> None:
    if there.record.run_uid != record.run_uid:
        raise CheckpointError(
            f"{there.path} was written by run {there.record.run!r} ({there.record.run_uid}) while run {record.run!r} "
            f"({record.run_uid}) trains into the same directory: nothing was overwritten; give each run a "
            "checkpoint.dir of its own"
        )


def _to_json(record: Record, sizes: Mapping[str, int], digests: Sequence[int]) -> str:
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
        "digests": list(digests),
    }
    return json.dumps(fields, indent=2) + "\n"
