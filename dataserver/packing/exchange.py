"""Exchanging samples between two bins: the loops that everything which improves a packing lives on.

What a bin may give, an *offer*, is up to three of its samples, or nothing. An exchange is an offer of each of two
bins. The offers of the one are sorted by size, so that for an offer of the other only those are looked at that
leave both bins within their capacity.
"""

from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dataserver.compiled import compiled
from dataserver.packing.held import Held, relist

_Ints = NDArray[np.int64]

# Of a bin with more samples than these, so many evenly spread ones are offered: in triples, in pairs, alone.
_TRIPLES: Final = 12
_PAIRS: Final = 24
_SINGLES: Final = 64

# 1 + 64 + 24 * 23 / 2 of a large bin, 1 + 12 + 66 + 220 of a small one; a power of two, because it is in a key.
_OFFERS: Final = 512

# Of the offers that are of the right size, so many evenly spread ones are looked at.
_WINDOW: Final = 24

# The members of an offer are positions in its bin, so many bits each, all of them set for none.
_BITS: Final = 21
_NONE: Final = 2**_BITS - 1

EVEN_OUT: Final = 0
"""The bin gives of its cost, to the middle of both at best, and to `amount` if it can."""

TAKE_COST: Final = 1
"""The bin takes on `amount` of cost, or as much of it as it can."""

MAKE_ROOM: Final = 2
"""The bin gives as much of its size as its partner has room for, and `amount` if it can."""

# Of an amount of cost that is to be taken on, more than this part is, or nothing; and one may lack at most the other.
_LEAST_PART: Final = 16
_AS_GOOD: Final = 1024


class Offers(NamedTuple):
    """Space for what a bin may give: its members; and of each offer the size, the cost, and which members it has.

    `keys`: in ascending order, the size of each offer times `_OFFERS` plus its number.
    """

    members: _Ints
    size: _Ints
    cost: _Ints
    which: _Ints
    keys: _Ints

    @classmethod
    def space(cls, longest: int) -> Self:
        """For bins of at most `longest` items."""
        return cls(np.empty(longest, dtype=np.int64), *np.empty((4, _OFFERS), dtype=np.int64))


@compiled
def improve(  # noqa: PLR0917  # compiled functions have no keyword-only arguments
    held: Held, number: int, partners: _Ints, aim: int, amount: int, mine: Offers, others: Offers
) -> tuple[int, int]:
    """Make the exchange of bin `number` with one of `partners` that serves the `aim` best.

    It is the first one found that serves it well enough. Returns the position of the partner, -1 where no exchange
    helps, and how much was looked at.
    """
    count = _list_offers(held, number, mine)
    _sort(mine, count)
    values = mine.size if aim == MAKE_ROOM else mine.cost
    other_values = others.size if aim == MAKE_ROOM else others.cost
    looked_at, chosen, given, taken = 8 * count, -1, 0, 0
    # An exchange is worth the less the better: the higher cost of both bins, what is lacking, or the room, negative.
    least = held.cost[number] if aim == EVEN_OUT else 0 if aim == MAKE_ROOM else amount - amount // _LEAST_PART
    enough = amount + (least - amount) // 4 if aim == EVEN_OUT else -amount if aim == MAKE_ROOM else amount // _AS_GOOD
    for at in range(len(partners)):
        partner = partners[at]
        want, above, below, base = _sought(held, number, partner, aim, amount)
        if base >= least:
            continue
        other_count = _list_offers(held, partner, others)
        looked_at += 4 * other_count
        for other in range(other_count):
            begin = _bisect(mine.keys, count, (others.size[other] - held.room[number]) * _OFFERS)
            end = _bisect(mine.keys, count, (others.size[other] + held.room[partner] + 1) * _OFFERS)
            for key in range(begin, end, (end - begin) // _WINDOW + 1):
                one = mine.keys[key] & (_OFFERS - 1)
                moved = values[one] - other_values[other]
                looked_at += 1
                if above < moved < below and base + abs(moved - want) < least:
                    least, chosen, given, taken = base + abs(moved - want), at, mine.which[one], others.which[other]
            if least <= enough:
                break
        if least <= enough:
            break
    if chosen >= 0:
        _list_offers(held, partners[chosen], others)
        _hand(held, number, partners[chosen], mine, given)
        _hand(held, partners[chosen], number, others, taken)
        relist(held, number, partners[chosen])
    return chosen, looked_at


@compiled
def _sought(held: Held, number: int, partner: int, aim: int, amount: int) -> tuple[int, int, int, int]:
    """How much is to be moved to a partner at best; above and below what; and what the best is worth."""
    if aim == EVEN_OUT:
        gap = held.cost[number] - held.cost[partner]
        return gap // 2, 0, gap, held.cost[number] - gap // 2
    if aim == TAKE_COST:
        return -amount, -amount - 1, 0, 0
    return held.room[partner], 0, held.room[partner] + 1, -held.room[partner]


@compiled
def _list_offers(held: Held, number: int, offers: Offers) -> int:
    """List what bin `number` may give; returns how many offers these are."""
    members, sizes, costs, which, _ = offers
    count, item = 0, held.first[number]
    while item >= 0:
        members[count] = item
        count, item = count + 1, held.following[item]
    sizes[0], costs[0], which[0] = 0, 0, -1
    found = 1
    for at in range(0, count, count // _SINGLES + 1):
        sizes[found], costs[found] = held.size[members[at]], held.price[members[at]]
        which[found] = at | ~_NONE
        found += 1
    step = count // _PAIRS + 1
    for at in range(0, count, step):
        for other in range(at + step, count, step):
            size = held.size[members[at]] + held.size[members[other]]
            cost = held.price[members[at]] + held.price[members[other]]
            sizes[found], costs[found], which[found] = size, cost, at | (other | ~_NONE) << _BITS
            found += 1
            if count <= _TRIPLES:
                for third in range(other + 1, count):
                    sizes[found], costs[found] = size + held.size[members[third]], cost + held.price[members[third]]
                    which[found] = at | (other | (third | ~_NONE) << _BITS) << _BITS
                    found += 1
    return found


@compiled
def _sort(offers: Offers, count: int) -> None:
    """Set the first `count` keys (by Shell's method)."""
    keys = offers.keys
    for number in range(count):
        keys[number] = offers.size[number] * _OFFERS + number
    gap = 121
    while gap > 0:
        for at in range(gap, count):
            key, to = keys[at], at
            while to >= gap and keys[to - gap] > key:
                keys[to] = keys[to - gap]
                to -= gap
            keys[to] = key
        gap //= 3


@compiled
def _bisect(keys: _Ints, count: int, key: int) -> int:
    """Where the first of `count` keys stands that is not below `key`."""
    begin, end = 0, count
    while begin < end:
        middle = (begin + end) >> 1
        if keys[middle] < key:
            begin = middle + 1
        else:
            end = middle
    return begin


@compiled
def _hand(held: Held, origin: int, to: int, offers: Offers, which: int) -> None:
    """Hand the members of an offer from one bin to another; their lists are not right any more."""
    while which & _NONE != _NONE:
        item = offers.members[which & _NONE]
        held.bins[item] = to
        held.cost[origin] -= held.price[item]
        held.cost[to] += held.price[item]
        held.room[origin] += held.size[item]
        held.room[to] -= held.size[item]
        which >>= _BITS
