"""A plan: which samples a step takes, and which rank gets them in which micro-batch.

A plan is a pure function of (order, lengths, cursor, batch spec, data-parallel size). It is
computed wherever it is needed and stored nowhere; its digest is what gets sealed.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dataserver.cursor import Cursor
from dataserver.packing.figures import PackingFigures
from dataserver.sampling.order import Samples


class SampleTable(Protocol):
    """What planning may know about samples: how many, how long, how many targets."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Kept rows of each source."""

    def lengths(self, samples: Samples) -> NDArray[np.int64]:
        """Tokens served of each sample, int64[n], each at least 2."""

    def targets(self, samples: Samples) -> NDArray[np.int64]:
        """Targets among positions 1.. of each sample, int64[n], each at least 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One step, planned for `dp_world_size` ranks. It belongs to the stage `end.stage`, whose table knows its samples.

    `rounds[j][r]` holds the indices (int64[k], k >= 0) into `samples` of the micro-batch that
    rank r gets in round j; every sample stands in exactly one.
    """

    step: int
    begin: Cursor
    end: Cursor
    dp_world_size: int
    samples: Samples
    lengths: NDArray[np.int64]
    rounds: tuple[tuple[NDArray[np.int64], ...], ...]
    target_count: int
    token_count: int
    last: bool
    digest: str
    figures: PackingFigures

    def source_tokens(self) -> list[int]:
        """Tokens served of each source up to the last that has a sample here."""
        tokens = np.zeros(int(self.samples.source.max()) + 1, dtype=np.int64)
        np.add.at(tokens, self.samples.source, self.lengths)
        return tokens.tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfRun:
    """No step follows `end`; `reason` is `max_steps` or `max_epochs`."""

    end: Cursor
    reason: str
