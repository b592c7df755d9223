"""Two trainers that want one run."""

from collections.abc import Callable

from crashlab.rank import RUN
from crashlab.samples import rows_of
from dataserver.client import DataClient, StepStream
from dataserver.errors import AttemptAliveError, DataServerError, HolderFencedError, StaleAttemptError
from dataserver.run_spec import RunSpec


class Contender:
    """A trainer of one rank, driven step by step."""

    def __init__(self, client: DataClient, holder: str) -> None:
        self.client = client
        self.holder = holder
        self.rows: list[int] = []
        self.stream: StepStream | None = None

    def begin(self, *, after: "Contender | None" = None, take_over: bool = False) -> None:
        """Begin afresh, or from what `after` saved."""
        self.attempt = self.client.begin_attempt(
            RUN,
            resume=after is not None,
            cursor=after.saved_end if after else None,
            version=after.saved_end.step if after else None,
            world_size=1,
            dp_world_size=1,
            batch=None,
            holder=self.holder,
            take_over=take_over,
        )
        self.stream = self.client.stream(
            RUN, self.attempt, world_rank=0, dp_rank=0, next_step=self.attempt.base.step + 1, credits=1
        )

    def train(self, steps: int) -> None:
        """Consume so many steps, or to the end of the run."""
        for _ in range(steps):
            step = next(self.stream, None)
            if step is None:
                return
            for micro_batch in step:
                self.rows += rows_of(micro_batch)
            self.stream.ack(step)
            self.end = step.end

    def save(self) -> None:
        self.saved, self.saved_end = list(self.rows), self.end
        self.client.commit_cursor(RUN, self.attempt, self.end, f"checkpoint of {self.holder}")


def contend(client: DataClient, spec: RunSpec) -> list[str]:
    """Complaints about how the server arbitrates."""
    client.create_run(RUN, spec)
    first, second = Contender(client, "first"), Contender(client, "second")
    first.begin()
    first.train(2)
    first.save()
    complaints = refused(AttemptAliveError, lambda: second.begin(after=first))
    first.train(2)
    first.save()
    saved_by_first = first.saved
    second.begin(after=first, take_over=True)
    second.train(1)
    complaints += refused(StaleAttemptError, lambda: first.train(100))
    complaints += refused(StaleAttemptError, first.save)
    complaints += refused(HolderFencedError, lambda: first.begin(after=first, take_over=True))
    first.stream.close()
    second.train(100)
    second.save()
    second.stream.close()
    kept = saved_by_first + second.saved
    if sorted(kept) != sorted(2 * list(range(len(kept) // 2))):
        complaints.append(f"the survivors' weights hold {sorted(kept)}")
    return complaints


def rewind(client: DataClient, spec: RunSpec) -> list[str]:
    """Complaints about a run that a person moves back under a trainer."""
    client.create_run(RUN, spec)
    trainer = Contender(client, "first")
    trainer.begin()
    trainer.train(2)
    trainer.save()
    kept, kept_end = trainer.saved, trainer.saved_end
    trainer.train(2)
    trainer.save()
    client.rewind_run(RUN, kept_end.step)
    complaints = refused(StaleAttemptError, lambda: trainer.train(100))
    complaints += refused(StaleAttemptError, trainer.save)
    trainer.stream.close()
    trainer.rows, trainer.saved_end = list(kept), kept_end
    trainer.begin(after=trainer)
    trainer.train(100)
    trainer.save()
    trainer.stream.close()
    if sorted(trainer.saved) != sorted(2 * list(range(len(trainer.saved) // 2))):
        complaints.append(f"the weights hold {sorted(trainer.saved)}")
    return complaints


def refused(expected: type[DataServerError], call: Callable[[], None]) -> list[str]:
    """Complaints unless `call` raises exactly `expected`."""
    try:
        call()
    except expected:
        return []
    except DataServerError as error:
        return [f"{expected.__name__} was due, {type(error).__name__} came: {error}"]
    return [f"{expected.__name__} was due, nothing came"]
