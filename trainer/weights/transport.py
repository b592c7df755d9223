"""The interface of the ways that weights take.

    rank 0      meet ─ (engines get ready) ─ join ─ send buckets ─ complete ─ (engines load) ─ leave
    the others                               join ─ send buckets ─────────────────────────── leave

One object is one sync on one rank. `join` and `send` are called from the sender's thread, may take
until the deadline, and raise anything; the others are called from the training thread and are quick.
"""

from typing import Protocol

import torch

from trainer.weights.gather import Bucket
from trainer.weights.sync import Meeting


class Transport(Protocol):
    """One sync's way, as one rank sees it."""

    @property
    def device(self) -> torch.device:
        """Where buckets must lie to be sent."""

    def carries(self, bucket: int) -> bool:
        """Whether this rank sends that bucket. Of every bucket exactly one rank says so."""

    def meet(self) -> Meeting:
        """On rank 0, before the engines are asked: where they find the weights. Raises `OSError`, `DataServerError`."""

    def join(self, group_size: int, deadline_s: float) -> None:
        """The engines are ready, `group_size` ranks with rank 0; everything must be sent within `deadline_s`."""

    def send(self, bucket: Bucket) -> None:
        """Send a bucket that this rank carries. Buckets come in order."""

    def complete(self, checksum: str) -> None:
        """On rank 0, after all ranks sent all: say so to whoever reads. Raises `OSError`, `DataServerError`."""

    def leave(self) -> None:
        """The sync is over: let go of everything, deleting what was written. Idempotent; raises nothing."""
