"""A heap of bins: those of the least key come first, of equal keys the lowest number.

`keys` and `numbers` (int64[m]) hold the keys and the numbers of the `count` bins that are there. A bin has four below
it, not two: then they are half as deep, and the keys that are compared lie beside each other.
"""

import numpy as np
from numpy.typing import NDArray

from dataserver.compiled import compiled

_Ints = NDArray[np.int64]


@compiled
def push(keys: _Ints, numbers: _Ints, count: int, key: int, number: int) -> None:
    """Add `number` to the `count` that are there."""
    at = count
    while at > 0:
        above = (at - 1) >> 2
        if keys[above] < key or (keys[above] == key and numbers[above] < number):
            break
        keys[at], numbers[at] = keys[above], numbers[above]
        at = above
    keys[at], numbers[at] = key, number


@compiled
def sink(keys: _Ints, numbers: _Ints, count: int, key: int, number: int) -> None:
    """Put `number` in the place of the root, and where it belongs."""
    at = 0
    while True:
        first = 4 * at + 1
        if first >= count:
            break
        below, least = first, keys[first]
        for other in range(first + 1, min(first + 4, count)):
            if keys[other] < least or (keys[other] == least and numbers[other] < numbers[below]):
                below, least = other, keys[other]
        if key < least or (key == least and number < numbers[below]):
            break
        keys[at], numbers[at] = least, numbers[below]
        at = below
    keys[at], numbers[at] = key, number


@compiled
def drop(keys: _Ints, numbers: _Ints, count: int) -> int:
    """Take the root, of `count` numbers, out."""
    number = numbers[0]
    if count > 1:
        sink(keys, numbers, count - 1, keys[count - 1], numbers[count - 1])
    return int(number)


@compiled
def ascending(key: _Ints, chosen: _Ints) -> _Ints:
    """The `chosen` numbers by their `key` (one for each number), the least first; ties by number."""
    keys, numbers, ordered = np.empty_like(chosen), np.empty_like(chosen), np.empty_like(chosen)
    for at in range(len(chosen)):
        push(keys, numbers, at, key[chosen[at]], chosen[at])
    for at in range(len(chosen)):
        ordered[at] = drop(keys, numbers, len(chosen) - at)
    return ordered
