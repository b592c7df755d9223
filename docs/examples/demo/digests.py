"""A sample's digest, by which a row of the store and what a rank trained on are known to be the same."""

from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray


def sample_digest(tokens: NDArray[Any], loss_mask: NDArray[Any]) -> str:
    """XXH3-128 of a sample's token ids (integers[n]) and of its loss mask (0/1[n]), in hex."""
    data = np.ascontiguousarray(tokens, dtype="<u4").tobytes() + np.ascontiguousarray(loss_mask, dtype="u1").tobytes()
    return xxhash.xxh3_128_hexdigest(data)
