"""A bucket of weights as it arrived, and the time that is left for the rest."""

import time
from collections.abc import Sequence

from dataserver.weight_buckets import Buffer, TensorSpec

# A bucket: weights in the order of the transfer, each with its bytes, which nobody writes to again.
Bucket = Sequence[tuple[TensorSpec, Buffer]]


class ReceiveError(Exception):
    """A transfer did not come to its end; its message says at which weight, and why."""


class Deadline:
    """A moment `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left_s(self, awaited: str) -> float:
        """Seconds left; raises `ReceiveError`, naming what was waited for, when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise ReceiveError(f"{awaited} did not come within {self._seconds:g} s")
        return left
