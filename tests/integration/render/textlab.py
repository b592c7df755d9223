"""Conversations, and what a server needs to render them."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dataserver.client import DataClient
from dataserver.render.output import locked
from dataserver.render.pace import SharedProgress
from dataserver.render.source import lock_of
from dataserver.render_options import RenderOptions
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source

LIMIT_S = 280.0

ROWS = [
    {"messages": [{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": f"answer {n}"}]}
    for n in range(40)
]


def write_lines(path: Path, rows: list) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def text_source(source: Path | str, tokenizer: Path, **render: object) -> dict[str, object]:
    return {"path": str(source), "render": {"tokenizer": str(tokenizer), **render}}


@contextmanager
def held_up(source: Path, chatml: Path, index_dir: Path) -> Iterator[SharedProgress]:
    """Another process seems to render `source`, so that a server waits until the end of the block."""
    lock = lock_of(source, RenderOptions(tokenizer=chatml), index_dir)
    lock.parent.mkdir(parents=True, exist_ok=True)
    progress = SharedProgress(lock.with_suffix(".progress"))
    with locked(lock):
        yield progress
        progress.close()


def spec_of(store: str) -> RunSpec:
    return RunSpec(
        order=OrderSpec(sources=(Source(store=store),), max_length=256),
        batch=BatchSpec(step_samples=8, micro_batch_tokens=512, max_epochs=1),
    )


def eventually(ready: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not ready():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def samples_of(client: DataClient, run: str) -> int:
    """Train on a run from its beginning to its end; how many samples there were."""
    attempt = client.begin_attempt(run, resume=False, world_size=1, dp_world_size=1, holder="test")
    seen = 0
    with client.stream(run, attempt, world_rank=0, dp_rank=0, next_step=1) as steps:
        for step in steps:
            seen += sum(len(micro_batch.cu_seqlens) - 1 for micro_batch in step)
            steps.ack(step)
    return seen
