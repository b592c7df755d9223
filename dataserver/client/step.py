"""A step as the training loop sees it."""

from collections.abc import Callable, Iterator

from dataserver.cursor import Cursor
from dataserver.weight_sync import OrchestratorAddress
from dataserver.wire.micro_batch import MicroBatch
from dataserver.wire.responses import StepBegun


class Step:
    """One optimizer step: iterate over it once for this rank's micro-batches, in round order.

    All ranks get the same number of them. A micro-batch without sub-sequences has no weight but
    takes part: under FSDP the ranks meet in every round.
    """

    def __init__(self, begun: StepBegun, wait_s: float, take: Callable[[], tuple[MicroBatch, float]]) -> None:
        self._begun = begun
        self._wait_s = wait_s
        self._take = take
        self._taken = 0

    def __iter__(self) -> Iterator[MicroBatch]:
        return self

    def __next__(self) -> MicroBatch:
        if self._taken == self._begun.rounds:
            raise StopIteration
        micro_batch, waited = self._take()
        self._taken += 1
        self._wait_s += waited
        return micro_batch

    @property
    def number(self) -> int:
        """The step, from 1: the policy version of the weights after it."""
        return self._begun.step

    @property
    def rounds(self) -> int:
        """Micro-batches of this rank, as many as of any other."""
        return self._begun.rounds

    @property
    def end(self) -> Cursor:
        """Where the next step begins: what a checkpoint after this step holds."""
        return self._begun.end

    @property
    def plan_digest(self) -> str:
        """Digest of the plan over all ranks. Ranks compare it before they reduce."""
        return self._begun.plan_digest

    @property
    def sync_weights(self) -> bool:
        """Whether the weights go to the inference engines after this step."""
        return self._begun.sync_weights

    @property
    def orchestrator(self) -> OrchestratorAddress | None:
        """Whom to hand them over by; None where no orchestrator was there."""
        return self._begun.orchestrator

    @property
    def last(self) -> bool:
        """Whether the run ends with this step."""
        return self._begun.last

    @property
    def target_count(self) -> int:
        """Targets over all ranks and micro-batches."""
        return self._begun.target_count

    @property
    def weight_sum(self) -> float:
        """Weights of all targets over all ranks and micro-batches: the denominator of the loss."""
        return self._begun.weight_sum

    @property
    def token_count(self) -> int:
        """Tokens over all ranks, without padding."""
        return self._begun.token_count

    @property
    def sample_count(self) -> int:
        """Samples over all ranks."""
        return self._begun.sample_count

    @property
    def wait_s(self) -> float:
        """Seconds for which this rank waited for data in this step, so far."""
        return self._wait_s

    def __repr__(self) -> str:
        return f"Step(number={self.number}, rounds={self.rounds}, taken={self._taken}, last={self.last})"
