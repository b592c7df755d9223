"""Making rounds shorter by exchanging samples between bins.

A round lasts as long as its costliest bin. That one and a cheaper one of the same round exchange what brings them
nearest to each other, again and again, until the round is even. Long samples cost more a token than short
ones do, so this works between full bins too. Where there are several rounds, each in its turn, the costliest first,

- has bins that stay above what is within its reach exchange with bins of any round that follows;
- if its costliest sample alone costs more than the mean of all that is left, that sample is its level: bins below it
  take on cost from the costliest ones of the rounds that follow, which costs no time.
"""

from bisect import insort
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.exchange import EVEN_OUT, TAKE_COST, Offers, improve
from dataserver.packing.held import Held
from dataserver.packing.placement import Items
from dataserver.packing.rounds import EVEN, Arrangement

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
        for numbers in self._by_cost():
            self._even(numbers, self._reach(numbers))

    def across_rounds(self) -> None:
        """Have each round exchange with those that follow it."""
        for round_ in range(self._shape[0] - 1):
            left = self._by_cost()[round_:]
            first = self._held.first[left]
            costliest = int(self._held.price[first[first >= 0]].max(initial=0))
            self._even(left.ravel(), max(costliest, self._reach(left[0])))
            if costliest * left.size > int(self._held.cost[left].sum()):
                left = self._by_cost()[round_:]
                self._lift(left[0], left[1:].ravel())

    def _by_cost(self) -> NDArray[np.int64]:
        return np.argsort(-self._held.cost, kind="stable").reshape(self._shape)

    def _reach(self, numbers: NDArray[np.int64]) -> int:
        """What is near enough to the mean."""
        mean = int(self._held.cost[numbers].sum()) // numbers.size
        return mean + mean // EVEN

    def _ranked(self, numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Costs and bins, the cheapest first."""
        return sorted(zip(self._held.cost[numbers].tolist(), numbers.tolist(), strict=True))

    def _even(self, numbers: NDArray[np.int64], enough: int) -> None:
        """Bring the costliest of these bins down, as far as `enough` if that can be.

        One that cannot be brought down stays; as many as share one round with it are tried before the round counts.
        """
        ranked = self._ranked(numbers)
        top = len(ranked) - 1
        while self.looked_at > 0 and top >= self._shape[1] - 1 and ranked[top][0] > enough:
            places = range(0, top, -(-top // _PARTNERS))
            number = ranked[top][1]
            at = self._improve(number, [ranked[place][1] for place in places], EVEN_OUT, enough)
            if at < 0:
                top -= 1
                continue
            partner = ranked[places[at]][1]
            del ranked[top], ranked[places[at]]
            insort(ranked, (int(self._held.cost[number]), number))
            insort(ranked, (int(self._held.cost[partner]), partner))

    def _lift(self, numbers: NDArray[np.int64], donors: NDArray[np.int64]) -> None:
        """Bring each of these bins up to the costliest one of them."""
        most = int(self._held.cost[numbers].max())
        ranked = self._ranked(donors)
        for number in numbers.tolist():
            while self.looked_at > 0 and (lack := most - int(self._held.cost[number])) * EVEN > most:
                costliest = [donor for _, donor in ranked[: -_DONORS - 1 : -1]]
                at = self._improve(number, costliest, TAKE_COST, lack)
                if at < 0:
                    break
                _, donor = ranked.pop(len(ranked) - 1 - at)
                insort(ranked, (int(self._held.cost[donor]), donor))

    def _improve(self, number: int, partners: list[int], aim: int, amount: int) -> int:
        of_partners = np.array(partners, dtype=np.int64)
        at, looked_at = improve(self._held, number, of_partners, aim, amount, self._mine, self._others)
        self.looked_at -= looked_at
        return at
