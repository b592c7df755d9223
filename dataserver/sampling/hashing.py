"""A hash of counters: the finalizer of splitmix64 (Steele, Lea and Flood, 2014) over counter and key."""

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)


def mixed(counters: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """64 bits for each of `counters` (uint64, any shape), under `key` (0..2^63-1)."""
    values = counters * _GOLDEN
    values += np.uint64(key)
    values ^= values >> _SHIFT_1
    values *= _MIX_1
    values ^= values >> _SHIFT_2
    values *= _MIX_2
    values ^= values >> _SHIFT_3
    return values
