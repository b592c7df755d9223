"""Samples in bins, in a form that compiled loops can change."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dataserver.compiled import compiled

_Ints = NDArray[np.int64]


class Held(NamedTuple):
    """Items in bins, all int64; changed in place.

    `size`, `price`, `bins`: of each item. `cost`, `room`: of each bin. The items of a bin are a list in ascending
    order: `first` of each bin, and what is `following` each item; -1 at the end.
    """

    size: _Ints
    price: _Ints
    bins: _Ints
    cost: _Ints
    room: _Ints
    first: _Ints
    following: _Ints

    @classmethod
    def of(cls, size: _Ints, price: _Ints, bins: _Ints, *, count: int, capacity: int) -> Self:
        """Items of `size` and `price` in `count` bins; `bins` is copied."""
        cost, room = np.zeros(count, dtype=np.int64), np.full(count, capacity, dtype=np.int64)
        first, following = np.full(count, -1, dtype=np.int64), np.empty(len(bins), dtype=np.int64)
        held = cls(size, price, bins.copy(), cost, room, first, following)
        _enlist(held)
        return held


@compiled
def add(held: Held, item: int, number: int) -> None:
    """Put an item that is in no list into bin `number`."""
    held.bins[item] = number
    held.cost[number] += held.price[item]
    held.room[number] -= held.size[item]
    before, after = -1, held.first[number]
    while 0 <= after < item:
        before, after = after, held.following[after]
    held.following[item] = after
    if before < 0:
        held.first[number] = item
    else:
        held.following[before] = item


@compiled
def _enlist(held: Held) -> None:
    """Lists of all items, and what these make of each bin; a number beyond the bins says that an item is in none."""
    for item in range(len(held.bins) - 1, -1, -1):
        number = held.bins[item]
        if number < len(held.cost):
            held.cost[number] += held.price[item]
            held.room[number] -= held.size[item]
            held.following[item] = held.first[number]
            held.first[number] = item


@compiled
def relist(held: Held, number: int, partner: int) -> None:
    """Make the lists of two bins anew from what both held."""
    one, other = held.first[number], held.first[partner]
    last, other_last = -1, -1
    held.first[number], held.first[partner] = -1, -1
    while one >= 0 or other >= 0:
        if other < 0 or 0 <= one < other:
            item, one = one, held.following[one]
        else:
            item, other = other, held.following[other]
        owner = held.bins[item]
        before = last if owner == number else other_last
        if before < 0:
            held.first[owner] = item
        else:
            held.following[before] = item
        held.following[item] = -1
        if owner == number:
            last = item
        else:
            other_last = item
