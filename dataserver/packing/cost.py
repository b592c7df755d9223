"""What a sample costs to compute, relative to others."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
