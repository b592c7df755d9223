"""Placing samples into bins, the longest first, in O(n log n).

Three rules share one loop, because sizes only fall: a bin without room for the sample at hand
*waits* until samples are small enough for it. So two heaps suffice: the open bins by what the
rule prefers, and the waiting bins by their room.
"""

from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush, heapreplace


class Rule(Enum):
    """Which of the bins with room gets the next sample; ties go to the lower bin number."""

    FIRST_FIT = "lowest number"
    BEST_FIT = "least room"
    CHEAPEST = "least cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Samples in descending length, ties in ascending index: index, footprint and cost of each.

    Python integers, because the quadratic costs of many long samples leave 64 bits.
    """

    index: list[int]
    size: list[int]
    cost: list[int]


@dataclass(frozen=True, slots=True)
class Bins:
    """Micro-batches in the making, column by column: number, room left, cost, sample indices."""

    number: list[int] = field(default_factory=list)
    room: list[int] = field(default_factory=list)
    cost: list[int] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.number)

    def open(self, capacity: int) -> int:
        """Add an empty bin and return its number."""
        number = len(self.number)
        self.number.append(number)
        self.room.append(capacity)
        self.cost.append(0)
        self.members.append([])
        return number

    def extend(self, others: "Bins") -> None:
        """Take over the bins of `others`, numbered on."""
        self.number.extend(range(len(self), len(self) + len(others)))
        self.room.extend(others.room)
        self.cost.extend(others.cost)
        self.members.extend(others.members)


def place(items: Items, *, capacity: int, rule: Rule, opened: int) -> Bins:
    """Place all items (at least one, none above `capacity`).

    `opened` empty bins stand ready at the start; another is opened when none has room.
    """
    bins = Bins()
    for _ in range(opened):
        bins.open(capacity)
    preference = {Rule.FIRST_FIT: bins.number, Rule.BEST_FIT: bins.room, Rule.CHEAPEST: bins.cost}[rule]
    room, cost, members = bins.room, bins.cost, bins.members
    active = [(preference[number], number) for number in bins.number]
    heapify(active)
    waiting: list[tuple[int, int]] = []  # (-room, number)
    smallest = items.size[-1]
    for index, size, price in zip(items.index, items.size, items.cost, strict=True):
        while waiting and -waiting[0][0] >= size:
            number = heappop(waiting)[1]
            heappush(active, (preference[number], number))
        while active and room[active[0][1]] < size:
            number = heappop(active)[1]
            if room[number] >= smallest:  # else nothing will ever fit
                heappush(waiting, (-room[number], number))
        if not active:
            number = bins.open(capacity)
            active.append((preference[number], number))
        number = active[0][1]
        room[number] -= size
        cost[number] += price
        members[number].append(index)
        heapreplace(active, (preference[number], number))
    return bins
