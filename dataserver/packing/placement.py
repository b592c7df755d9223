"""Placing samples into bins by how full these are, the longest first, in O(n log n).

Sizes only fall, so a bin without room for the sample at hand *waits* until samples are small
enough for it. Two heaps suffice: the open bins by what the rule prefers, and the waiting bins
by their room. Samples of one size that follow one another go to a bin together: it stays the
preferred one until it has no room for that size.
"""

from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush, heapreplace

import numpy as np
from numpy.typing import NDArray


class Rule(Enum):
    """Which of the bins with room gets the next sample; ties go to the lower bin number."""

    FIRST_FIT = "lowest number"
    BEST_FIT = "least room"


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Samples in descending length, ties in ascending index: index, footprint and cost, int64[n] each."""

    index: NDArray[np.int64]
    size: NDArray[np.int64]
    cost: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.index)


def place(items: Items, *, capacity: int, rule: Rule, opened: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """The bin of each item (at least one, none above `capacity`), int64[n], bins numbered as they open.

    `opened`: the room of each bin that stands ready at the start; none by default.
    """
    begins = np.flatnonzero(np.diff(items.size, prepend=-1))
    counts = np.diff(begins, append=len(items))
    smallest = int(items.size[-1])
    by_number = rule is Rule.FIRST_FIT
    room: list[int] = [] if opened is None else opened.tolist()
    # (what the rule prefers, number)
    active = sorted((number if by_number else left, number) for number, left in enumerate(room))
    waiting: list[tuple[int, int]] = []  # (-room, number)
    numbers: list[int] = []
    amounts: list[int] = []
    for size, count in zip(items.size[begins].tolist(), counts.tolist(), strict=True):
        while waiting and -waiting[0][0] >= size:
            left, number = heappop(waiting)
            heappush(active, (number if by_number else -left, number))
        missing = count
        while missing:
            while active and room[active[0][1]] < size:
                number = heappop(active)[1]
                if room[number] >= smallest:  # else nothing will ever fit
                    heappush(waiting, (-room[number], number))
            if not active:
                active.append((len(room) if by_number else capacity, len(room)))
                room.append(capacity)
            number = active[0][1]
            taken = min(missing, room[number] // size)
            missing -= taken
            room[number] -= taken * size
            numbers.append(number)
            amounts.append(taken)
            heapreplace(active, (number if by_number else room[number], number))
    return np.repeat(np.array(numbers, dtype=np.int64), amounts)


def place_in_order(sizes: NDArray[np.int64], *, capacity: int) -> NDArray[np.int64]:
    """Next-fit: the bin of each sample, int64[n]; one that does not fit the last bin opens the next."""
    ends = np.cumsum(sizes)
    bins = np.empty(len(sizes), dtype=np.int64)
    number = start = used = 0
    while start < len(sizes):
        stop = int(np.searchsorted(ends, used + capacity, side="right"))
        bins[start:stop] = number
        number, start, used = number + 1, stop, int(ends[stop - 1])
    return bins
