"""Where a stream's steps come from: an attempt of a run, or a held-out store.

A session sends what its supply has ready, as far as credits go; it knows nothing of seals, acks and syncs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from dataserver.errors import DataServerError
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.run_spec import BatchSpec
from dataserver.streaming.fetches import Fetches
from dataserver.weight_sync import Offer, OrchestratorAddress, ShutdownHold


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Whether the weights move after a step, and whom to hand them over by; None where nobody was there."""

    sync_weights: bool
    orchestrator: OrchestratorAddress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyStep:
    """A step that may be sent, or the end that follows the last one."""

    plan: Plan | EndOfRun
    stamp: Stamp


# Behind the last step, on a stream that takes them: offers, and why the next one, or the end, is still to come.
Ready = ReadyStep | Offer | ShutdownHold


class Supply(Protocol):
    """The steps of one stream."""

    @property
    def name(self) -> str:
        """What is read, in messages, as in "run 'chat' attempt 3"."""

    @property
    def rank(self) -> str:
        """Who reads, in messages, as in "rank 3"."""

    @property
    def step(self) -> int:
        """The step that was begun last, or is done already."""

    @property
    def dp_rank(self) -> int:
        """Which micro-batches of each round are the stream's."""

    @property
    def batch(self) -> BatchSpec:
        """How steps are packed."""

    @property
    def fetches(self) -> Fetches:
        """What encodes the steps' micro-batches."""

    @property
    def over(self) -> "asyncio.Future[DataServerError]":
        """What ends the stream from outside; done when it does."""

    async def opened(self) -> bytes:
        """The first message of the stream."""

    async def next(self, credit: Callable[[], Awaitable[None]]) -> Ready:
        """What follows; `credit` waits until the client can take a micro-batch of a step."""

    def make_ready(self) -> None:
        """Begin to make the next step ready: there are credits for the rest of this one, and for its first micro-batch.

        May be called again.
        """

    def ready_next(self) -> ReadyStep | None:
        """The next step, if it is ready and `next` will return it."""

    def acknowledge(self, step: int, offer: int) -> None:
        """Note that the client consumed `step`, and is done with `offer`.

        Raises `InvalidRequestError` where that cannot be.
        """

    async def release(self) -> None:
        """Let go of what the stream held. Once begun it goes on, also when who waits for it is cancelled."""
