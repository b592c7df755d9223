"""What a sample costs to compute, relative to others."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# The sum of all costs of a step stays below 2^62, so that no sum of some of them leaves 64 bits.
_BITS = 62


@dataclass(frozen=True, slots=True)
class CostModel:
    """A sample of n tokens costs `linear * n + quadratic * n * n`; a micro-batch, the sum of its samples.

    Attention never crosses a sample, so the square is per sample. Not both may be 0.
    """

    linear: int
    quadratic: int

    def of(self, lengths: NDArray[np.int64]) -> list[int]:
        """The cost of each sample: n Python integers, because a step's sum can leave 64 bits."""
        linear, quadratic = self.linear, self.quadratic
        return [(linear + quadratic * length) * length for length in lengths.tolist()]

    def scaled(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The cost of each sample, int64[n], each at least 1, with a sum of at most 2^62 plus n.

        Exact where the costs' own sum is below 2^62; else all are divided by one power of two.
        """
        longest, total = int(lengths.max(initial=0)), int(lengths.sum())
        excess = ((self.linear + self.quadratic * longest) * total).bit_length() - _BITS
        if excess <= 0:
            return (self.linear + self.quadratic * lengths) * lengths
        if ((self.linear + self.quadratic * longest) * longest).bit_length() <= _BITS:
            costs: NDArray[np.int64] = (self.linear + self.quadratic * lengths) * lengths >> excess
            return np.maximum(costs, 1)
        return np.array([max(1, cost >> excess) for cost in self.of(lengths)], dtype=np.int64)
