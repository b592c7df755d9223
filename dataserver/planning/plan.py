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
    """What planning may know about samples: how many, how long, which have images, what their targets weigh."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each source that take a position."""

    def lengths(self, samples: Samples) -> NDArray[np.int64]:
        """Tokens served of each sample, int64[n], each at least 2; 0 for a row of which nothing is served.

        A table that has to read rows first may raise what its owner understands, and is asked again.
        """

    def targets(self, samples: Samples) -> NDArray[np.int64]:
        """Targets among positions 1.. of each sample, int64[n], each at least 1."""

    def weights(self, samples: Samples) -> NDArray[np.float64] | None:
        """Sum of the weights of those targets, float64[n]; None where every target weighs 1."""

    def has_images(self, samples: Samples) -> NDArray[np.bool_] | None:
        """Which samples have images, bool[n]; None where no sample of any source has."""


class TextOnly:
    """What a `SampleTable` answers where no sample has weights or images."""

    def weights(self, samples: Samples) -> None:
        """None: every target weighs 1."""

    def has_images(self, samples: Samples) -> None:
        """None: no sample has images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One step, planned for `dp_world_size` ranks. It belongs to the stage `end.stage`, whose table knows its samples.

    `rounds[j][r]` holds the indices (int64[k], k >= 0) into `samples` of the micro-batch that
    rank r gets in round j; every sample stands in exactly one. The last `image_rounds` rounds hold samples with images,
    those before hold text. `weight_sum`: the weights of all targets, the denominator of the loss.
    """

    step: int
    begin: Cursor
    end: Cursor
    dp_world_size: int
    samples: Samples
    lengths: NDArray[np.int64]
    rounds: tuple[tuple[NDArray[np.int64], ...], ...]
    image_rounds: int
    target_count: int
    weight_sum: float
    token_count: int
    last: bool
    digest: str
    figures: PackingFigures

    def source_tokens(self) -> list[int]:
        """Tokens served of each source up to the last that has a sample here."""
        tokens = np.zeros(int(self.samples.source.max()) + 1, dtype=np.int64)
        np.add.at(tokens, self.samples.source, self.lengths)
        return tokens.tolist()

    def is_image_round(self, round_index: int) -> bool:
        """Whether the samples of a round have images; no round mixes the two."""
        return round_index >= len(self.rounds) - self.image_rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfRun:
    """No step follows `end`; `reason` is `max_steps` or `max_epochs`."""

    end: Cursor
    reason: str
