"""What the targets of rows weigh."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def target_weights(
    weights: NDArray[np.float32], mask: NDArray[Any] | None, begins: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sum of the weights of each row's targets from its second token on, float64[n].

    `weights`: float32[m], of rows end to end that begin at `begins` (int64[n], ascending); `mask`: [m] of 0 and 1, None
    where all tokens are targets. No row is empty.
    """
    counted = weights.astype(np.float64)
    if mask is not None:
        counted *= mask
    counted[begins] = 0
    return np.add.reduceat(counted, begins)
