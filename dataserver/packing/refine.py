"""Making rounds shorter by exchanging samples between bins.

A round lasts as long as its costliest bin. That one and a cheaper one of the same round exchange what brings them
nearest to each other, again and again, until the round is even. Long samples cost more a token than short
ones do, so this works between full bins too. Where there are several rounds, each in its turn, the costliest first,

- has bins that stay above what is within its reach exchange with bins of any round that follows;
- if its costliest sample alone costs more than the mean of all that is left, that sample is its level: bins below it
  take on cost from the costliest ones of the rounds that follow, which costs no time.
"""

from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from dataserver.compiled import compiled
from dataserver.packing.exchange import EVEN_OUT, TAKE_COST, Offers, improve
from dataserver.packing.heap import ascending
from dataserver.packing.held import Held
from dataserver.packing.placement import Items
from dataserver.packing.rounds import EVEN, Arrangement

_Ints = NDArray[np.int64]
_Number = TypeVar("_Number", int, _Ints)

# Of the bins that might be a partner so many evenly spread ones are looked at, of those that might give the costliest.
_PARTNERS: Final = 24
_DONORS: Final = 8

# How often exchanges between rounds are followed by those within.
_TURNS: Final = 2

# In more rounds than this, or more bins, a few long samples do not show.
_ROUNDS_AT_ONCE: Final = 64
_BINS_AT_ONCE: Final = 2**12

# Bound on what is looked at, for time: about 4 ns each.
_LOOKED_AT: Final = 2**21


def refine(items: Items, arrangement: Arrangement, *, capacity: int, looked_at: int = _LOOKED_AT) -> Arrangement:
    """As many rounds, by cost, with samples exchanged between bins; or `arrangement`, where that is not shorter.

    `looked_at` bounds the exchanges that are weighed, whatever the size of the step.
    """
    work = _Work(items, arrangement, capacity, looked_at)
    work.within_rounds()
    found = [arrangement, work.arranged()]
    rounds = len(arrangement.numbers)
    if 1 < rounds <= _ROUNDS_AT_ONCE and arrangement.numbers.size <= _BINS_AT_ONCE:
        for _ in range(_TURNS):
            if work.looked_at <= 0 or found[-1].is_even(EVEN):
                break
            work.across_rounds()
            work.within_rounds()
            found.append(work.arranged())
    return min(found, key=lambda each: each.duration)


class _Work:
    """Bins that change, and what may still be looked at."""

    def __init__(self, items: Items, arrangement: Arrangement, capacity: int, looked_at: int) -> None:
        self.looked_at = looked_at
        self._shape = arrangement.numbers.shape
        bins, count = arrangement.bins, arrangement.numbers.size
        self._held = Held.of(items.size, items.cost, bins, count=count, capacity=capacity)
        self._mine, self._others = Offers.space(len(items)), Offers.space(len(items))

    def arranged(self) -> Arrangement:
        """What has come of it so far."""
        return Arrangement(bins=self._held.bins.copy(), numbers=self._by_cost(), cost=self._held.cost.copy())

    def within_rounds(self) -> None:
        """Even out each round."""
        rounds = self._by_cost()
        cost = self._held.cost[rounds]
        enough = _near(cost.sum(axis=1) // self._shape[1])
        for number in np.flatnonzero(cost[:, 0] > enough):
            self._even(rounds[number], int(enough[number]))

    def across_rounds(self) -> None:
        """Have each round exchange with those that follow it."""
        for round_ in range(self._shape[0] - 1):
            left = self._by_cost()[round_:]
            first = self._held.first[left]
            costliest = int(self._held.price[first[first >= 0]].max(initial=0))
            mean = int(self._held.cost[left[0]].sum()) // self._shape[1]
            self._even(left.ravel(), max(costliest, _near(mean)))
            if costliest * left.size > int(self._held.cost[left].sum()):
                left = self._by_cost()[round_:]
                self.looked_at = _lift(self._held, left[0], left[1:].ravel(), self.looked_at, self._mine, self._others)

    def _by_cost(self) -> _Ints:
        return np.argsort(-self._held.cost, kind="stable").reshape(self._shape)

    def _even(self, numbers: _Ints, enough: int) -> None:
        """Bring the costliest of these bins down, as far as `enough` if that can be.

        One that cannot be brought down stays; as many as share one round with it are tried before the round counts.
        """
        spared = self._shape[1] - 1
        self.looked_at = _even(self._held, numbers, spared, enough, self.looked_at, self._mine, self._others)


def _near(mean: _Number) -> _Number:
    """What is near enough to the mean."""
    return mean + mean // EVEN


@compiled
def _even(  # noqa: PLR0917  # compiled functions have no keyword-only arguments
    held: Held, numbers: _Ints, spared: int, enough: int, looked_at: int, mine: Offers, others: Offers
) -> int:
    """Bring the costliest of these bins down, until all but `spared` ones were tried; returns what may be looked at."""
    ranked, top, partners = ascending(held.cost, numbers), len(numbers) - 1, np.empty(_PARTNERS, dtype=np.int64)
    while looked_at > 0 and top >= max(spared, 1) and held.cost[ranked[top]] > enough:
        number, step, count = ranked[top], -(-top // _PARTNERS), 0
        for place in range(0, top, step):
            partners[count] = ranked[place]
            count += 1
        at, looked = improve(held, number, partners[:count], int(EVEN_OUT), enough, mine, others)
        looked_at -= looked
        if at < 0:
            top -= 1
            continue
        _remove(ranked, top, at * step)
        _insert(held.cost, ranked, top - 1, number)
        _insert(held.cost, ranked, top, partners[at])
    return looked_at


@compiled
def _lift(  # noqa: PLR0917
    held: Held, numbers: _Ints, donors: _Ints, looked_at: int, mine: Offers, others: Offers
) -> int:
    """Bring each of these bins up to the costliest one of them; returns how much may still be looked at."""
    most, ranked = held.cost[numbers].max(), ascending(held.cost, donors)
    last = len(ranked) - 1
    for number in numbers:
        while looked_at > 0 and most - held.cost[number] > most // EVEN:
            costliest = ranked[::-1][:_DONORS].copy()
            at, looked = improve(held, number, costliest, int(TAKE_COST), most - held.cost[number], mine, others)
            looked_at -= looked
            if at < 0:
                break
            _remove(ranked, last, last - at)
            _insert(held.cost, ranked, last, costliest[at])
    return looked_at


@compiled
def _remove(ranked: _Ints, last: int, at: int) -> None:
    """Take the number at `at` out; those up to `last` move up."""
    for place in range(at, last):
        ranked[place] = ranked[place + 1]


@compiled
def _insert(cost: _Ints, ranked: _Ints, count: int, number: int) -> None:
    """Put `number` into its place among the first `count`."""
    at = count
    while at > 0:
        above = ranked[at - 1]
        if cost[above] < cost[number] or (cost[above] == cost[number] and above < number):
            break
        ranked[at] = above
        at -= 1
    ranked[at] = number
