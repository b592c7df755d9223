"""Which of a run's checkpoints are kept, and what crashed attempts left behind.

Only what is known to be of this run is ever removed: other runs may use the directory by mistake,
and a checkpoint that cannot be read may be the only one of its steps.
"""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from trainer.checkpoint import Checkpoint, Checkpoints, Record, by_step, discard, read_checkpoint
from trainer.errors import CheckpointError

log = logging.getLogger(__name__)


class Retention:
    """Keeps the `keep_last` newest checkpoints of a run, and for good those at multiples of `keep_every` steps."""

    def __init__(
        self, checkpoints: Checkpoints, run_uid: str, *, keep_last: int = 1, keep_every: int | None = None
    ) -> None:
        self._checkpoints = checkpoints
        self._run_uid = run_uid
        self._keep_last = keep_last
        self._keep_every = keep_every
        self._unreadable: set[Path] = set()

    def prune(self, attempt: int, base_step: int) -> list[Path]:
        """Remove the run's checkpoints that no rule keeps; returns them. The newest always stays. Never fails a job.

        `attempt` went on from `base_step`: what others wrote behind it was abandoned then, and takes no place of those
        that the run can go on from. It stays as long as it is among the newest itself.
        """
        ours = sorted(self._ours(), key=by_step)
        by_age = sorted(ours, key=lambda each: (each.record.attempt, each.record.step))
        standing = [each for each in ours if each.record.attempt == attempt or each.record.step <= base_step]
        newest = {each.path for order in (ours, by_age, standing) for each in order[-self._keep_last :]}
        removed = [
            checkpoint.path
            for checkpoint in ours
            if checkpoint.path not in newest and not self._kept_for_good(checkpoint.record)
        ]
        for path in removed:
            try:
                discard(path)
            except OSError as error:
                log.warning("%s is of no use any more and could not be removed: %s", path, error)
        return removed

    def sweep(self, attempt: int) -> None:
        """Remove what the run's attempts below `attempt` left unfinished, and what any run left half removed."""
        for discarded in self._checkpoints.discarded():
            shutil.rmtree(discarded, ignore_errors=True)
        for temporary in self._checkpoints.unfinished(self._run_uid):
            number = temporary.name.split(".")[1].rpartition("-")[2]
            if number.isdecimal() and int(number) < attempt:
                shutil.rmtree(temporary, ignore_errors=True)

    def _ours(self) -> Iterator[Checkpoint]:
        """The run's checkpoints that can be read; the others are named once, and left for a person to look at."""
        for path in self._checkpoints.paths():
            try:
                checkpoint = read_checkpoint(path)
            except CheckpointError as error:
                if path not in self._unreadable:
                    self._unreadable.add(path)
                    log.warning("left alone, as it cannot be read: %s", error)
                continue
            if checkpoint.record.run_uid == self._run_uid:
                yield checkpoint

    def _kept_for_good(self, record: Record) -> bool:
        return self._keep_every is not None and record.step % self._keep_every == 0
