"""Placing samples into bins, the longest first, in O(n log n).

Sizes only fall, so a bin without room for the sample at hand *waits* until samples are small
enough for it. Two heaps suffice: the open bins by what the rule prefers, and the waiting bins
by their room.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataserver.compiled import compiled
from dataserver.packing.heap import drop, push, sink

_FIRST_FIT: Final = 0
_BEST_FIT: Final = 1
_CHEAPEST: Final = 2

_ANY_NUMBER: Final = 2**62


class Rule(Enum):
    """Which of the bins with room gets the next sample; ties go to the lower bin number."""

    FIRST_FIT = _FIRST_FIT
    """The lowest number."""
    BEST_FIT = _BEST_FIT
    """The least room."""
    CHEAPEST = _CHEAPEST
    """The least cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Samples in descending length, ties in ascending index: index, footprint and cost, int64[n] each."""

    index: NDArray[np.int64]
    size: NDArray[np.int64]
    cost: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.index)


def place(
    items: Items,
    *,
    capacity: int,
    rule: Rule,
    opened: NDArray[np.int64] | None = None,
    spent: NDArray[np.int64] | None = None,
    most: int | None = None,
) -> NDArray[np.int64]:
    """The bin of each item (at least one, none above `capacity`), int64[n], bins numbered as they open.

    `opened`: the room of each bin that stands ready at the start, none by default; `spent`: what it costs so far, by
    default nothing. Where more than `most` bins are needed, the items from there on are all given the number `most`.
    """
    bins = np.empty(len(items), dtype=np.int64)
    count = 0 if opened is None else len(opened)
    room = np.empty(count + len(items), dtype=np.int64)
    if opened is not None:
        room[:count] = opened
    scratch = np.empty((5, len(room)), dtype=np.int64)
    scratch[-1, :count] = 0 if spent is None else spent
    limit = _ANY_NUMBER if most is None else most
    _place(items.size, items.cost, capacity, rule.value, room, count, limit, bins, scratch)
    return bins


def place_in_order(sizes: NDArray[np.int64], *, capacity: int) -> NDArray[np.int64]:
    """Next-fit: the bin of each sample, int64[n]; one that does not fit the last bin opens the next."""
    bins = np.empty(len(sizes), dtype=np.int64)
    _place_in_order(sizes, capacity, bins)
    return bins


@compiled
def _place(  # noqa: PLR0917  # compiled functions have no keyword-only arguments
    size: NDArray[np.int64],
    cost: NDArray[np.int64],
    capacity: int,
    rule: int,
    room: NDArray[np.int64],
    count: int,
    most: int,
    bins: NDArray[np.int64],
    scratch: NDArray[np.int64],
) -> None:
    """`room[:count]`, `scratch[4, :count]`: of bins that stand ready, their costs; with place for one more an item."""
    keys, active, waiting_keys, waiting, preferred = scratch
    smallest = size[-1]
    actives, waitings = _open(size[0], smallest, rule, room[:count], scratch)
    for at in range(len(size)):
        while waitings and room[waiting[0]] >= size[at]:
            number = drop(waiting_keys, waiting, waitings)
            waitings -= 1
            push(keys, active, actives, preferred[number], number)
            actives += 1
        while actives and room[active[0]] < size[at]:
            preferred[active[0]] = keys[0]
            number = drop(keys, active, actives)
            actives -= 1
            push(waiting_keys, waiting, waitings, -room[number], number)
            waitings += 1
        if not actives:
            if count == most:
                _fill_up(bins, at, most)
                return
            keys[0], active[0], actives = 0, count, 1
            room[count] = capacity
            count += 1
        number = active[0]
        bins[at] = number
        room[number] -= size[at]
        if room[number] < smallest:  # nothing will ever fit
            drop(keys, active, actives)
            actives -= 1
        elif rule == _BEST_FIT:
            keys[0] = room[number]
        elif rule == _CHEAPEST:
            sink(keys, active, actives, keys[0] + cost[at], number)  # only a key that grows can put another bin first


@compiled
def _open(
    largest: int, smallest: int, rule: int, room: NDArray[np.int64], scratch: NDArray[np.int64]
) -> tuple[int, int]:
    """Put the bins that stand ready where they belong; returns how many are open, and how many wait."""
    keys, active, waiting_keys, waiting, preferred = scratch
    actives = waitings = 0
    for number in range(len(room)):
        if rule == _BEST_FIT:
            preferred[number] = room[number]
        if room[number] >= largest:
            push(keys, active, actives, preferred[number], number)
            actives += 1
        elif room[number] >= smallest:
            push(waiting_keys, waiting, waitings, -room[number], number)
            waitings += 1
    return actives, waitings


@compiled
def _fill_up(bins: NDArray[np.int64], begin: int, number: int) -> None:
    for at in range(begin, len(bins)):
        bins[at] = number


@compiled
def _place_in_order(sizes: NDArray[np.int64], capacity: int, bins: NDArray[np.int64]) -> None:
    number = used = 0
    for at in range(len(sizes)):
        if used + sizes[at] > capacity:
            number, used = number + 1, 0
        used += sizes[at]
        bins[at] = number
