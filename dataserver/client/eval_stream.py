"""A held-out store as an evaluation reads it."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from dataserver.client.stream import StepStream
from dataserver.wire.micro_batch import MicroBatch


class EvalStream:
    """Iterates once over one rank's micro-batches of a held-out store. For one thread at a time.

        with client.eval_stream(EvalSpec(store="dev", max_length=4096, micro_batch_tokens=16384)) as stream:
            for micro_batch in stream:
                ...

    All ranks get the same number; behind the last row some are empty. A server that restarts is a pause.
    `steps`: the same, grouped as the server planned it, for ranks that compare before they meet in a collective; a
    step is one round. There is nothing to acknowledge.
    """

    def __init__(self, steps: StepStream) -> None:
        self.steps = steps

    def __iter__(self) -> Iterator[MicroBatch]:
        for step in self.steps:
            yield from step

    def close(self) -> None:
        """End the stream, in bounded time. Idempotent."""
        self.steps.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
