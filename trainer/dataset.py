"""Steps as a PyTorch data set, for training loops other than this trainer's.

    dataset = StepDataset(feed, run="chat", vocab_size=32000, world=world)
    for item in DataLoader(dataset, batch_size=None):
        for packed in item["micro_batches"]: ...          # forward, backward
        optimizer.step()
        dataset.ack()                                     # the step is in the weights
        save(path, weights, dataset.state_dict())
        dataset.commit(path.as_uri())

One item is what one rank does in one optimizer step. `docs/examples/hf_trainer.py` is a whole one.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypedDict

from torch.utils.data import IterableDataset, get_worker_info

from dataserver.client import AttemptInfo
from dataserver.cursor import Cursor
from dataserver.errors import InvalidRequestError, PreconditionError
from trainer.agreement import agreed, told_by_first
from trainer.feed import Feed, Step, StepSource
from trainer.launch import World
from trainer.model import Packed, pack

STATE_VERSION: Final = 1


class StepItem(TypedDict):
    """One optimizer step of one rank. `weight_sum` is over all ranks: the denominator of the loss."""

    step: int
    target_count: int
    weight_sum: float
    last: bool
    micro_batches: list[Packed]


class StepDataset(IterableDataset[StepItem]):
    """The steps of one rank of one attempt, from the last acknowledged one on.

    Iterating begins an attempt, so it is done once per life of a job. Asking for the next item
    acknowledges the one before; `ack` does so earlier, before a checkpoint is written.
    """

    def __init__(self, feed: Feed, *, run: str, vocab_size: int, world: World, take_over: bool = False) -> None:
        self._feed = feed
        self._run = run
        self._vocab_size = vocab_size
        self._world = world
        self._take_over = take_over
        self._attempt: AttemptInfo | None = None
        self._done: Cursor | None = None
        self._given: Step | None = None
        self._source: StepSource | None = None

    def __iter__(self) -> Iterator[StepItem]:
        """Begin an attempt and yield its steps.

        Raises `PreconditionError` in a DataLoader's worker, and where another iteration has begun meanwhile.
        """
        if get_worker_info() is not None:
            raise PreconditionError(
                "a StepDataset was given to DataLoader workers: they would be forked under open connections, and steps "
                "that they fetched ahead would count as consumed. Use num_workers=0; the client prefetches by itself"
            )
        self.close()
        self._attempt = told_by_first(self._world, self._begin)
        next_step = 1 if self._done is None else self._done.step + 1
        rank = self._world.rank
        source = self._source = self._feed.open(
            attempt=self._attempt, world_rank=rank, dp_rank=rank, next_step=next_step
        )
        for step in agreed(source, self._world):
            micro_batches = [pack(batch, self._world.device) for batch in step]
            self._given = step
            yield StepItem(
                step=step.number,
                target_count=step.target_count,
                weight_sum=step.weight_sum,
                last=step.last,
                micro_batches=micro_batches,
            )
            if self._source is not source:
                raise PreconditionError("this iteration is over: the data set was closed, or iterated over anew")
            self.ack()
        self.close()

    def ack(self) -> None:
        """Say that the optimizer step of the item that was given last is done. Idempotent."""
        if self._given is not None and self._source is not None:
            self._source.ack(self._given)
            self._done, self._given = self._given.end, None

    def state_dict(self) -> dict[str, Any]:
        """Where the next step begins, after the last acknowledged one; belongs beside the weights."""
        cursor = None if self._done is None else self._done.to_json()
        return {"version": STATE_VERSION, "run": self._run, "cursor": cursor}

    def commit(self, uri: str) -> None:
        """Tell the data server, from rank 0, that the checkpoint at `uri` holds the last acknowledged step."""
        if self._attempt is not None and self._done is not None and self._world.is_first:
            self._feed.commit(attempt=self._attempt, cursor=self._done, uri=uri)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there at the next iteration, at any number of ranks.

        Raises `InvalidRequestError` for a state that is not a StepDataset's, or another run's.
        """
        if not _is_state(state):
            raise InvalidRequestError(
                f"not the state of a StepDataset of version {STATE_VERSION}: {state!r:.200}; "
                "it is what state_dict() returned"
            )
        if state["run"] != self._run:
            raise InvalidRequestError(f"the state belongs to run {state['run']!r}, this data set to {self._run!r}")
        self._done = None if state["cursor"] is None else Cursor.from_json(state["cursor"])

    def close(self) -> None:
        """End the stream. Idempotent."""
        if self._source is not None:
            self._source.close()
        self._source = self._given = None

    def _begin(self) -> AttemptInfo:
        self._feed.create_run(self._vocab_size)
        return self._feed.begin(
            resume=self._done,
            world_size=self._world.size,
            dp_world_size=self._world.size,
            holder=self._world.holder,
            take_over=self._take_over,
        )


def _is_state(state: object) -> bool:
    """Whether it has the form of what `state_dict` returns."""
    if not isinstance(state, Mapping) or set(state) != {"version", "run", "cursor"}:
        return False
    return state["version"] == STATE_VERSION and isinstance(state["cursor"], str | None)
