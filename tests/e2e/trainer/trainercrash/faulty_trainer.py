"""The trainer, keeping books on the rows that each optimizer step used, and dying where it is told.

Run by torchrun in place of `-m trainer`. `TRAINER_BOOKS` is a directory: one line a step and rank,
written after the optimizer step. `TRAINER_FAULT` is JSON: `{"at", "step", "rank", "server"}`; at
that point of that step, rank `rank` (-1 for all) kills process `server` (if not 0) and itself
(`"dies": false` for the server alone).

    after_backward     gradients are there, no weight has changed
    before_ack         the optimizer step is done
    inside_save        the shards are written, the checkpoint is not renamed
    before_commit      the checkpoint is complete, the ledger does not know it
    after_commit       the ledger knows it
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer import loop
from trainer.cli import main
from trainer.data import ServerFeed

BOOKS = Path(os.environ["TRAINER_BOOKS"])
FAULT: dict[str, Any] = json.loads(os.environ.get("TRAINER_FAULT", "null")) or {"at": "never"}
RANK = int(os.environ["RANK"])


def reach(point: str, step: int) -> None:
    """Die, if this is the place."""
    if FAULT["at"] != point or FAULT["step"] != step or FAULT["rank"] not in (RANK, -1):
        return
    if FAULT.get("server"):
        os.kill(FAULT["server"], signal.SIGKILL)
    if FAULT.get("dies", True):
        os.kill(os.getpid(), signal.SIGKILL)


def around(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    real = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        return wrapper(real, *arguments, **named)

    setattr(owner, name, call)


def forward_backward(real: Any, job: Any, step: Any) -> Any:
    rows: list[int] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(step, name)

        def __iter__(self) -> Any:
            for batch in step:
                rows.extend(int(batch.tokens[begin]) - 1 for begin in batch.cu_seqlens[:-1])
                yield batch

    sums = real(job, Watched())
    job_rows[step.number] = rows
    reach("after_backward", step.number)
    return sums


def update(real: Any, job: Any, step: Any, lr: float) -> float:
    norm: float = real(job, step, lr)
    with (BOOKS / f"attempt-{job.attempt.number}-rank-{RANK}.jsonl").open("a") as book:
        book.write(
            json.dumps({"attempt": job.attempt.number, "step": step.number, "rows": job_rows[step.number]}) + "\n"
        )
    reach("before_ack", step.number)
    return norm


def save(real: Any, checkpoints: Any, record: Any, *rest: Any) -> Any:
    if FAULT["at"] == "inside_save" and FAULT["step"] == record.step:
        from trainer import state

        around(state, "save", lambda write, *a, **k: (write(*a, **k), reach("inside_save", record.step))[0])
    return real(checkpoints, record, *rest)


def commit(real: Any, feed: Any, *, attempt: Any, cursor: Any, uri: str) -> None:
    reach("before_commit", cursor.step)
    real(feed, attempt=attempt, cursor=cursor, uri=uri)
    reach("after_commit", cursor.step)


job_rows: dict[int, list[int]] = {}
around(loop.Job, "forward_backward", forward_backward)
around(loop.Job, "update", update)
around(loop, "save_checkpoint", save)
around(ServerFeed, "commit", commit)
sys.exit(main())
