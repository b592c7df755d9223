"""A feed that also writes down what a rank trained on.

A feed is how the training loop sees a data server; `-m trainer` has the plain one. This one writes a line a step into
RECORDS/attempt-A-rank-R.jsonl, when the optimizer step is done and acknowledged.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from digests import sample_digest

from dataserver.client import AttemptInfo, MicroBatch, Step, StepStream
from trainer.config import RunConfig
from trainer.data import Endpoint, ServerFeed


class RecordedStep:
    """A step that remembers the digests of the samples that were taken from it."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.samples: list[str] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a step has
        return getattr(self.step, name)

    def __iter__(self) -> Iterator[MicroBatch]:
        for batch in self.step:
            starts = batch.cu_seqlens[:-1]
            for start, end in zip(starts, starts + batch.lengths, strict=True):
                self.samples.append(sample_digest(batch.tokens[start:end], batch.loss_mask[start:end]))
            yield batch


class RecordedStream:
    """A rank's stream that writes a step's record when the step is acknowledged."""

    def __init__(self, stream: StepStream, path: Path) -> None:
        self._stream = stream
        self._file = path.open("w")

    def __iter__(self) -> Iterator[RecordedStep]:
        return map(RecordedStep, self._stream)

    def ack(self, step: RecordedStep) -> None:
        """Write, then acknowledge."""
        self._file.write(json.dumps({"step": step.number, "samples": step.samples}) + "\n")
        self._file.flush()
        self._stream.ack(step.step)

    def close(self) -> None:
        """Let go. Idempotent."""
        self._stream.close()
        self._file.close()


class RecordingFeed(ServerFeed):
    """The data server as a feed, with records in a directory."""

    def __init__(self, endpoint: Endpoint, run: RunConfig, records: Path) -> None:
        super().__init__(endpoint, run)
        self._records = records

    def open(  # type: ignore[override]
        self, *, attempt: AttemptInfo, world_rank: int, dp_rank: int, next_step: int, takes_offers: bool = False
    ) -> RecordedStream:
        """Open this rank's stream."""
        where = {"world_rank": world_rank, "dp_rank": dp_rank, "next_step": next_step}
        stream = super().open(attempt=attempt, takes_offers=takes_offers, **where)
        return RecordedStream(stream, self._records / f"attempt-{attempt.number}-rank-{world_rank}.jsonl")
