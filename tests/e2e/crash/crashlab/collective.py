"""What ranks need of one another: an all-gather. Rank 0 is the hub; a rank that is gone ends the others' wait."""

from multiprocessing.connection import Connection, Pipe
from typing import Any


class Collective:
    """One rank's end of the star."""

    def __init__(self, rank: int, spokes: list[Connection]) -> None:
        self.rank = rank
        self._spokes = spokes

    def all_gather(self, value: Any) -> list[Any]:
        """What all ranks gave, by rank."""
        if self.rank > 0:
            self._spokes[0].send(value)
            return self._spokes[0].recv()
        values = [value, *(spoke.recv() for spoke in self._spokes)]
        for spoke in self._spokes:
            spoke.send(values)
        return values

    def barrier(self) -> None:
        self.all_gather(None)


def star(world_size: int) -> list[Collective]:
    """Ends for all ranks, to be made before the ranks are forked."""
    pipes = [Pipe() for _ in range(world_size - 1)]
    hub = Collective(0, [hub_end for hub_end, _ in pipes])
    return [hub, *(Collective(rank, [spoke]) for rank, (_, spoke) in enumerate(pipes, start=1))]
