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


def place(
    items: Items, *, capacity: int, rule: Rule, opened: NDArray[np.int64] | None = None, most: int | None = None
) -> NDArray[np.int64]:
    """The bin of each item (at least one, none above `capacity`), int64[n], bins numbered as they open.

    `opened`: the room of each bin that stands ready at the start; none by default. Where more than `most` bins
    are needed, the items from there on are all given the number `most`.
    """
    # Heaps of whole numbers, each a value and a bin in one, because pairs take twice as long to compare.
    begins = np.flatnonzero(np.diff(items.size, prepend=-1))
    counts = np.diff(begins, append=len(items))
    smallest = int(items.size[-1])
    by_number = rule is Rule.FIRST_FIT
    room: list[int] = [] if opened is None else opened.tolist()
    many = len(room) + len(items)
    # What the rule prefers; for best fit, room * many + number.
    active = list(range(len(room))) if by_number else sorted(left * many + at for at, left in enumerate(room))
    waiting: list[int] = []  # (capacity - room) * many + number
    numbers: list[int] = []
    amounts: list[int] = []
    for size, count in zip(items.size[begins].tolist(), counts.tolist(), strict=True):
        fits = (capacity - size + 1) * many
        while waiting and waiting[0] < fits:
            number = heappop(waiting) % many
            heappush(active, number if by_number else room[number] * many + number)
        missing = count
        while missing:
            while active and room[active[0] % many] < size:
                number = heappop(active) % many
                if room[number] >= smallest:  # else nothing will ever fit
                    heappush(waiting, (capacity - room[number]) * many + number)
            if not active:
                if len(room) == most:
                    return np.append(numbers, most).repeat([*amounts, len(items) - sum(amounts)])
                active.append(len(room) if by_number else capacity * many + len(room))
                room.append(capacity)
            number = active[0] % many
            taken = 1 if missing == 1 else min(missing, room[number] // size)
            missing -= taken
            room[number] -= taken * size
            numbers.append(number)
            amounts.append(taken)
            if not by_number:
                heapreplace(active, room[number] * many + number)
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
