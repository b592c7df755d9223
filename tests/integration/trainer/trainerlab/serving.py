"""A store whose rows say which they are, and a feed that remembers what it handed out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dataserver.client import MicroBatch, Step, StepStream
from dataserver.testing import write_store
from trainer.config import RunConfig
from trainer.data import Endpoint, ServerFeed
from trainerlab.samples import VOCABULARY, MemoryStep


def write_numbered_store(path: Path, rows: int) -> Path:
    """`rows` rows of 3 to 20 tokens, row i beginning with the token i + 1."""
    random = np.random.default_rng(0)
    values = []
    for row in range(rows):
        rest = random.integers(1, VOCABULARY, random.integers(2, 20)).tolist()
        values.append(([row + 1, *rest], [0, *(1 for _ in rest)]))
    return write_store(path, rows=values)


def rows_in(batch: MicroBatch) -> list[int]:
    """Which rows of a numbered store a micro-batch holds."""
    return [int(batch.tokens[begin]) - 1 for begin in batch.cu_seqlens[:-1]]


class RecordingStream:
    """Hands out a stream's steps whole, and keeps them."""

    def __init__(self, stream: StepStream) -> None:
        self._stream = stream
        self._given: Step | None = None
        self.steps: list[MemoryStep] = []

    def __iter__(self) -> Iterator[MemoryStep]:
        for step in self._stream:
            self._given = step
            whole = MemoryStep(
                number=step.number,
                end=step.end,
                batches=list(step),
                target_count=step.target_count,
                token_count=step.token_count,
                sample_count=step.sample_count,
                weight_sum=step.weight_sum,
                last=step.last,
                plan_digest=step.plan_digest,
            )
            self.steps.append(whole)
            yield whole

    def ack(self, step: MemoryStep) -> None:
        assert self._given is not None
        self._stream.ack(self._given)

    def close(self) -> None:
        self._stream.close()


class RecordingFeed(ServerFeed):
    """A server's feed whose stream remembers."""

    def __init__(self, endpoint: Endpoint, run: RunConfig) -> None:
        super().__init__(endpoint, run)
        self.stream: RecordingStream | None = None

    def open(self, **where: Any) -> RecordingStream:  # type: ignore[override]
        self.stream = RecordingStream(super().open(**where))
        return self.stream
