"""Tables of samples without stores, and a run that is driven from cursor to cursor."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from dataserver.cursor import Cursor
from dataserver.planning.plan import EndOfRun, Plan, TextOnly
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, Shuffle
from dataserver.sampling.order import Samples
from dataserver.sampling.union import plain_union


class ListedTable(TextOnly):
    """Lengths as they are listed, source by source. Every second token is a target."""

    def __init__(self, lengths: Sequence[Sequence[int]]) -> None:
        self.sizes = tuple(len(source) for source in lengths)
        self._starts = np.concatenate(([0], np.cumsum(self.sizes)))
        self._lengths = np.array([length for source in lengths for length in source], dtype=np.int32)

    def lengths(self, samples: Samples) -> np.ndarray:
        return self._lengths[self._starts[samples.source] + samples.row]

    def targets(self, samples: Samples) -> np.ndarray:
        return self.lengths(samples) // 2


class HashedTable(TextOnly):
    """Any number of rows of 2 to 1001 tokens, computed from the row number; counts what is read."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.read = 0

    def lengths(self, samples: Samples) -> np.ndarray:
        self.read += len(samples)
        mixed = (samples.row.astype(np.uint64) + samples.source.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        return (2 + (mixed >> np.uint64(40)) % np.uint64(1000)).astype(np.int64)

    def targets(self, samples: Samples) -> np.ndarray:
        return np.ones(len(samples), dtype=np.int64)


@dataclass
class Drive:
    """Plans one step after the other, each from the JSON of the last cursor and with a fresh planner."""

    make_planner: Callable[[], Planner]
    cursor: Cursor = field(init=False)
    plans: list[Plan] = field(default_factory=list)
    ended: EndOfRun | None = None

    def __post_init__(self) -> None:
        self.cursor = self.make_planner().initial_cursor()

    def step(self, batch: BatchSpec, dp_world_size: int) -> Plan | EndOfRun:
        planned = self.make_planner().plan(Cursor.from_json(self.cursor.to_json()), batch, dp_world_size)
        if isinstance(planned, EndOfRun):
            self.ended = planned
            return planned
        assert planned.begin == self.cursor
        assert planned.step == planned.end.step == self.cursor.step + 1
        self.plans.append(planned)
        self.cursor = planned.end
        return planned

    def to_the_end(self, batch: BatchSpec, dp_world_size: int = 1) -> list[Plan]:
        while not isinstance(self.step(batch, dp_world_size), EndOfRun):
            pass
        return self.plans

    @property
    def consumed(self) -> Counter[tuple[int, int]]:
        """How often each (source, row) was handed to a rank."""
        count: Counter[tuple[int, int]] = Counter()
        for plan in self.plans:
            for group in plan.rounds:
                for members in group:
                    taken = plan.samples.take(members)
                    count.update(zip(taken.source.tolist(), taken.row.tolist(), strict=True))
        return count


@pytest.fixture(scope="session")
def listed_table() -> type[ListedTable]:
    return ListedTable


@pytest.fixture(scope="session")
def hashed_table() -> type[HashedTable]:
    return HashedTable


@pytest.fixture(scope="session")
def drive() -> Callable[..., Drive]:
    """`drive(table, seed=0, shuffle=…)`: a run over a table."""

    def begin(table: ListedTable | HashedTable, *, seed: int = 0, shuffle: Shuffle = Shuffle.FULL) -> Drive:
        return Drive(lambda: Planner.of_order(plain_union(table.sizes, seed, shuffle), table, "order"))

    return begin
