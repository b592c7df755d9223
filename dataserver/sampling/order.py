"""What an order is: from a place in it to the samples that come next, without state.

    place ──> samples from there on, over any number of epochs
    place + count ──> place

Pure arithmetic: no memory proportional to rows, and any place costs the same. Where a stretch
is cut into several changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidSpecError
from dataserver.sampling.permutation import MAX_SIZE


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples as two arrays of one length n.

    `source`: int32[n], index into the order's sources.
    `row`: int64[n], row number among the *kept* rows of that source.
    """

    source: NDArray[np.int32]
    row: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)

    def take(self, indices: NDArray[np.int64]) -> "Samples":
        """The samples at `indices` (int64[m]), in that order."""
        return Samples(self.source[indices], self.row[indices])


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in an order: `position` samples of `epoch` are consumed.

    `source_positions`: samples drawn of each source since the run began. Empty where the order
    began with the run, or draws no source by weight: then `epoch` and `position` say it all.
    """

    epoch: int = 0
    position: int = 0
    source_positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDraws:
    """How many samples of `store` came. By the weights it would be `target`, and it is off that by `error` at most."""

    store: str
    draws: int
    target: float
    error: float


class SampleOrder(Protocol):
    """One endless sequence of samples, epoch after epoch."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Kept rows of each source."""

    @property
    def epoch_size(self) -> int:
        """Samples of an epoch."""

    @property
    def epoch_counts(self) -> tuple[int, ...]:
        """Samples that an epoch takes of each source."""

    @property
    def by_weight(self) -> bool:
        """Whether sources have rows of their own to go on with: see `drawn`."""

    def samples(self, place: Place, count: int) -> Samples:
        """The `count` samples from `place` on."""

    def moved(self, place: Place, count: int) -> Place:
        """The place after `count` samples; the end of an epoch is the start of the next."""

    def drawn(self, place: Place) -> Mapping[str, int]:
        """Samples drawn of each store since the run began; empty where none is drawn by weight."""

    def draws(self, begin: Place, end: Place) -> Sequence[SourceDraws]:
        """What came of each source from `begin`, the start of an epoch, to `end`; empty where none has a weight."""

    def begin(self, epoch: int, drawn: Mapping[str, int]) -> Place:
        """The start of `epoch` for an order that follows another, which had `drawn` so much of each store."""


def check_epoch_size(size: int) -> int:
    """Return `size`; raise `InvalidSpecError` for an epoch of 2^40 samples or more."""
    if size >= MAX_SIZE:
        raise InvalidSpecError(f"an epoch would have {size} samples: the limit is {MAX_SIZE - 1}")
    return size
