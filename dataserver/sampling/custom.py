"""Samplers that a server's operator installs: a Python function that says which row stands where."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidSpecError

SamplerFunction = Callable[[int, int, NDArray[np.int64], tuple[int, ...]], NDArray[np.int64]]
"""(seed, epoch, positions, sizes) -> rows.

`positions`: int64[n], ascending, each in 0..sum(sizes)-1. The answer: int64[n], each in the same
range; rows count through the sources, which lie end to end and have `sizes` rows. It has to be a
pure function of these four, whatever other positions are asked together with one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomSampler:
    """An installed sampler. `identity`: its distribution and version, which are part of the order fingerprint."""

    name: str
    identity: str
    function: SamplerFunction


class CustomArrangement:
    """An `Arrangement` by a sampler's word. `sizes`: rows of the sources that lie end to end.

    What it says is checked where it is used: a row that there is not, or another answer to the same question, is an
    `InvalidSpecError`. That it names every row once cannot be known without asking for all.
    """

    def __init__(self, sampler: CustomSampler, sizes: tuple[int, ...], seed: int) -> None:
        self.size = sum(sizes)
        self._sampler = sampler
        self._sizes = sizes
        self._seed = seed

    def rows(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `Arrangement.rows`."""
        if len(positions) == 0:
            return np.empty(0, dtype=np.int64)
        rows = self._asked(epoch, positions)
        broken = np.flatnonzero((rows < 0) | (rows >= self.size))
        if len(broken):
            at = broken[0]
            raise self._fault(f"epoch {epoch}, position {positions[at]}: row {rows[at]} is not in 0..{self.size - 1}")
        again = self._asked(epoch, positions[-1:])
        if again[0] != rows[-1]:
            raise self._fault(
                f"epoch {epoch}, position {positions[-1]}: row {rows[-1]} among {len(rows)} positions, and row "
                f"{again[0]} by itself. It has to be a pure function of each position"
            )
        return rows

    def _asked(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        try:
            rows = np.asarray(self._sampler.function(self._seed, epoch, positions.copy(), self._sizes))
        except Exception as error:
            raise self._fault(f"epoch {epoch}, positions from {positions[0]} on: {error!r}") from error
        if rows.shape != positions.shape or rows.dtype.kind not in "iu":
            raise self._fault(
                f"epoch {epoch}: {len(positions)} positions gave {rows.dtype} of shape {rows.shape}, where whole "
                "numbers are needed, one each"
            )
        return rows.astype(np.int64)

    def _fault(self, what: str) -> InvalidSpecError:
        return InvalidSpecError(f"sampler {self._sampler.name!r} ({self._sampler.identity}): {what}", field="sampler")
