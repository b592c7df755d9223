"""A heap of bins: those of the least key come first, of equal keys the lowest number.

`heap` (int64[m]) holds `count` bin numbers, and `key` (int64) has one key for each number. A key changes only
while its bin is out of the heap, or is at the root: then `sink` puts the heap in order again.
"""

import numpy as np
from numpy.typing import NDArray

from dataserver.compiled import compiled

_Ints = NDArray[np.int64]


@compiled
def comes_before(key: _Ints, number: int, other: int) -> bool:
    """Whether the bin `number` comes before `other`."""
    return bool(key[number] < key[other] or (key[number] == key[other] and number < other))


@compiled
def push(heap: _Ints, count: int, key: _Ints, number: int) -> None:
    """Add `number` to the `count` that are there."""
    at = count
    while at > 0:
        above = (at - 1) >> 1
        other = heap[above]
        if comes_before(key, other, number):
            break
        heap[at] = other
        at = above
    heap[at] = number


@compiled
def sink(heap: _Ints, count: int, key: _Ints) -> None:
    """Put the root where it belongs by its key, which may have grown."""
    number = heap[0]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        least = heap[below]
        if below + 1 < count:
            other = heap[below + 1]
            if comes_before(key, other, least):
                below, least = below + 1, other
        if comes_before(key, number, least):
            break
        heap[at] = least
        at = below
    heap[at] = number


@compiled
def drop(heap: _Ints, count: int, key: _Ints) -> int:
    """Take the root, of `count` numbers, out."""
    number = heap[0]
    heap[0] = heap[count - 1]
    if count > 1:
        sink(heap, count - 1, key)
    return int(number)
