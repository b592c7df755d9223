"""What the training loop knows of where steps come from: protocols, and no more.

    Feed.await_stores                   every rank
    Feed.create_run -> Lineage          rank 0
    Feed.begin      -> attempt          rank 0, told to the others
    Feed.open       -> StepSource       every rank; yields Steps and offers, takes acks
    Feed.commit                         rank 0, after a checkpoint
    Feed.report                         rank 0, when a sync has ended
    Feed.held_out   -> StepSource       every rank, for an evaluation

`trainer.data.ServerFeed` is the data server; tests and benchmarks play back recorded steps.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from dataserver.client import AttemptInfo
from dataserver.cursor import Cursor
from dataserver.eval_spec import EvalSpec
from dataserver.weight_sync import Offer, OrchestratorAddress, WeightSync
from dataserver.wire.micro_batch import MicroBatch
from trainer.checkpoint import Lineage


class Step(Protocol):
    """One optimizer step, as one rank sees it; iterating yields its micro-batches in round order, once."""

    def __iter__(self) -> Iterator[MicroBatch]:
        """Yield the micro-batches of this rank, `rounds` of them."""

    @property
    def number(self) -> int:
        """The step, from 1."""

    @property
    def rounds(self) -> int:
        """Micro-batches of each rank."""

    @property
    def end(self) -> Cursor:
        """The cursor that belongs to the weights after this step."""

    @property
    def plan_digest(self) -> str:
        """Digest of the plan over all ranks."""

    @property
    def sync_weights(self) -> bool:
        """Whether weights move to the engines after this step."""

    @property
    def orchestrator(self) -> OrchestratorAddress | None:
        """By whom they move; None where no orchestrator was there."""

    @property
    def last(self) -> bool:
        """Whether the run ends with this step."""

    @property
    def target_count(self) -> int:
        """Targets over all ranks."""

    @property
    def weight_sum(self) -> float:
        """Weights of all targets over all ranks: the denominator of the loss."""

    @property
    def token_count(self) -> int:
        """Tokens over all ranks, without padding."""

    @property
    def sample_count(self) -> int:
        """Samples over all ranks."""

    @property
    def wait_s(self) -> float:
        """Seconds for which this rank waited for the step's data, so far."""


class StepSource(Protocol):
    """The steps of one rank, in order."""

    def __iter__(self) -> Iterator[Step]:
        """Yield steps until the run ends."""

    def ack(self, step: Any) -> None:  # noqa: ANN401 - takes what it yielded itself
        """Say that the optimizer step is done on this rank. Does not wait."""

    def opening_offer(self) -> Offer:
        """The weights that the attempt begins with; before the first step, on a stream that takes offers."""

    def offers(self) -> Iterator[Offer]:
        """What follows the last step, on a stream that takes offers; ends with the run.

        Raises `UnavailableError` when no server answers any more, perhaps on this rank alone.
        """

    def ack_offer(self, offer: Offer) -> None:
        """Say that this rank is done with the offer. Does not wait."""

    def close(self) -> None:
        """Let go. Idempotent."""


class Feed(Protocol):
    """What a trainer asks of whoever owns the order and the cursor."""

    def await_stores(self, names: Iterable[str]) -> None:
        """Return when neither these stores nor those of the run's stages are being rendered any more.

        That may take longer than a collective may, so every rank waits before the first one.
        """

    def create_run(self, vocab_size: int, *, wait_alive: bool = False) -> Lineage:
        """Create the run, or find it, and say which checkpoints belong to it.

        With `wait_alive`, first give an attempt that is alive the time to end: until then it writes checkpoints,
        and one that is chosen before would send the run back behind them.
        """

    def begin(
        self, *, resume: Cursor | None, world_size: int, dp_world_size: int, holder: str, take_over: bool
    ) -> AttemptInfo:
        """Begin an attempt, from a checkpoint's cursor or (None) from the beginning."""

    def open(
        self, *, attempt: AttemptInfo, world_rank: int, dp_rank: int, next_step: int, takes_offers: bool = False
    ) -> StepSource:
        """Open this rank's stream. `takes_offers`: weights are handed over outside steps too; the same on all ranks."""

    def commit(self, *, attempt: AttemptInfo, cursor: Cursor, uri: str) -> bool:
        """Say that a checkpoint is complete; returns whether that arrived.

        Until it does, older checkpoints stay: another trainer may have begun from one of them.
        """

    def report(self, sync: WeightSync) -> None:
        """Say how a sync ended; waits for a server that is away, and raises what it refuses with."""

    def held_out(self, spec: EvalSpec, *, dp_rank: int, dp_world_size: int) -> StepSource:
        """Open a held-out store at its first row. Its steps take no acks."""

    def close(self) -> None:
        """Let go. Idempotent."""
