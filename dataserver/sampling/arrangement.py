"""In which order the rows of one epoch come: as they are stored, or shuffled."""

import hashlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import OutOfRangeError
from dataserver.sampling.hashing import mixed
from dataserver.sampling.permutation import Permutation


class Arrangement(Protocol):
    """A bijection of 0..size-1 for each epoch."""

    @property
    def size(self) -> int:
        """Rows."""

    def rows(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """What stands at each of `positions` (int64[n], ascending, each in 0..size-1) of `epoch`, as int64[n]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Rows as they are stored, in every epoch."""

    size: int

    def rows(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions themselves."""
        if len(positions) and not 0 <= positions.min() <= positions.max() < self.size:
            raise OutOfRangeError(f"positions of epoch {epoch} are outside of its {self.size} samples")
        return positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffled:
    """One permutation of all rows an epoch."""

    size: int
    seed: int

    def rows(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `Permutation`."""
        return Permutation(self.size, self.seed, epoch)(positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Independent:
    """Each position any row, independently of the others: no bijection, rows repeat within an epoch."""

    size: int
    seed: int

    def rows(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """A hash of epoch and position, modulo the rows: below 2^40 of them, none is likelier by 2^-24 of itself."""
        values = mixed(positions.astype(np.uint64), derived_seed(self.seed, "independent", epoch))
        return (values % np.uint64(max(1, self.size))).astype(np.int64)


def derived_seed(seed: int, *purpose: str | int) -> int:
    """A seed of its own for a purpose, in 0..2^63-1: the first 63 bits of BLAKE2b over both."""
    text = "\0".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, person=b"ds seed").digest(), "little") >> 1
