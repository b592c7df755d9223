"""Placing samples, the longest first, each into the cheapest bin that has room.

Bins even out as this goes on: most of the time the next samples go to as many different bins,
in the order of their costs. Such a stretch is placed at once with arrays, and ends where the
rule for one sample at a time would come back to a bin. Where stretches get short (few bins, or
hardly any room) a heap goes on sample by sample. Both ways choose the same bins.
"""

from heapq import heapify, heappop, heappush, heapreplace

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.placement import Items

# A stretch costs about as much as a hundred samples one by one; so few in a row end the search for more.
_SHORT_STRETCH = 96
_SHORT_STRETCHES = 8

_MAX = np.iinfo(np.int64).max


def place_cheapest(items: Items, *, capacity: int, opened: int) -> NDArray[np.int64]:
    """The bin of each item (at least one, none above `capacity`), int64[n].

    `opened` empty bins stand ready at the start; another is opened when none has room. Ties go
    to the lower bin number.
    """
    bins = np.empty(len(items), dtype=np.int64)
    room = np.full(opened, capacity, dtype=np.int64)
    cost = np.zeros(opened, dtype=np.int64)
    at = short = 0
    while at < len(items) and opened >= _SHORT_STRETCH and short < _SHORT_STRETCHES:
        numbers = _stretch(items, at, room, cost)
        stop = at + len(numbers)
        if not len(numbers):
            break
        bins[at:stop] = numbers
        room[numbers] -= items.size[at:stop]
        cost[numbers] += items.cost[at:stop]
        short = short + 1 if len(numbers) < _SHORT_STRETCH else 0
        at = stop
    if at < len(items):
        bins[at:] = _one_by_one(items, at, room.tolist(), cost.tolist(), capacity)
    return bins


def _stretch(items: Items, at: int, room: NDArray[np.int64], cost: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bins of the items from `at` on, all different, as far as that is what one by one gives."""
    has_room = room >= items.size[at]
    fitting = np.flatnonzero(has_room)
    numbers = fitting[np.argsort(cost[fitting], kind="stable")][: len(items) - at]
    if not len(numbers):
        return numbers
    loads = cost[numbers]
    stop = at + len(numbers)
    # The i-th bin is the cheapest for the i-th item while it is cheaper than all that got one before it.
    cheapest_before = np.minimum.accumulate(loads + items.cost[at:stop])[:-1]
    back = np.flatnonzero(loads[1:] >= cheapest_before)
    length = int(back[0]) + 1 if len(back) else len(numbers)
    waiting = np.flatnonzero(~has_room & (room >= items.size[-1]))
    if len(waiting) and length > 1:
        # A bin that had no room for the first item may have it for a smaller one, and be cheaper than the i-th bin.
        waiting = waiting[np.argsort(-room[waiting], kind="stable")]
        with_room = np.searchsorted(-room[waiting], -items.size[at : at + length], side="right")
        least = np.minimum.accumulate(np.concatenate(([_MAX], cost[waiting])))[with_room]
        cheaper = np.flatnonzero(least <= loads[:length])
        length = int(cheaper[0]) if len(cheaper) else length
    return numbers[:length]


def _one_by_one(items: Items, at: int, room: list[int], cost: list[int], capacity: int) -> list[int]:
    smallest = int(items.size[-1])
    active = [(cost[number], number) for number in range(len(room))]
    heapify(active)
    waiting: list[tuple[int, int]] = []  # (-room, number)
    numbers = []
    for size, price in zip(items.size[at:].tolist(), items.cost[at:].tolist(), strict=True):
        while waiting and -waiting[0][0] >= size:
            number = heappop(waiting)[1]
            heappush(active, (cost[number], number))
        while active and room[active[0][1]] < size:
            number = heappop(active)[1]
            if room[number] >= smallest:  # else nothing will ever fit
                heappush(waiting, (-room[number], number))
        if not active:
            active.append((0, len(room)))
            room.append(capacity)
            cost.append(0)
        number = active[0][1]
        room[number] -= size
        cost[number] += price
        numbers.append(number)
        heapreplace(active, (cost[number], number))
    return numbers
