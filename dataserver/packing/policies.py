"""What each policy makes of samples: which placements it tries, and how it arranges their bins."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.full import place_cheapest, place_equally_full
from dataserver.packing.levels import place_in_levels
from dataserver.packing.placement import Items, Rule, place, place_in_order
from dataserver.packing.rank_sums import by_rank_sums, split_costliest
from dataserver.packing.refine import refine
from dataserver.packing.repair import repair
from dataserver.packing.rounds import (
    EVEN,
    Arrangement,
    by_cost,
    even_out_ranks,
    in_bin_order,
    spread_light_bins,
)
from dataserver.run_spec import PackingPolicy

Bins = NDArray[np.int64]

# Of all placements the best ones are refined, because that takes as long as several placements.
_REFINED = 2

# Of more samples than this not everything is tried: they are easily packed, and it takes time.
_MANY = 2**16

# What lasts longer than it must by less than this part is refined at once: that may settle it.
_NEARLY_EVEN = 64

# Of rounds with about as many tokens each, none may leave more than this part of its room.
_WASTE_PART = 24

# In more rounds than this a few long samples do not show.
_IN_LEVELS = 64


class Filling(Enum):
    """How bins are filled where rounds are to have about as many tokens each."""

    EQUALLY_FULL = "each sample into the emptiest bin"
    IN_LEVELS = "to the costliest sample of a round, but not far below its room"


@dataclass(frozen=True, slots=True)
class Packing:
    """What all policies know about samples to be packed.

    `step`: bins with those `beside` are a multiple of it. `known`: bins given from outside.
    """

    items: Items
    capacity: int
    dp_world_size: int
    step: int
    beside: int
    known: Bins | None

    def arranged(self, policy: PackingPolicy) -> Arrangement:
        """Bins in rounds, by `policy`."""
        if policy is PackingPolicy.NONE:
            return self._in_order(np.arange(len(self.items)))
        if policy is PackingPolicy.SEQUENTIAL:
            return self._in_order(place_in_order(self.items.size, capacity=self.capacity))
        if policy is PackingPolicy.BALANCED:
            return self._balanced()
        first_fit = place(self.items, capacity=self.capacity, rule=Rule.FIRST_FIT)
        if policy is PackingPolicy.FIRST_FIT:
            return self._in_order(first_fit)
        return self._by_rank_sums(self._even_bins(first_fit))

    def filled(self, filling: Filling, *, spread: bool) -> Arrangement | None:
        """Rounds with about as many tokens each; None where that takes more of them than they must be."""
        if filling is Filling.EQUALLY_FULL:
            bins = place_equally_full(self.items, capacity=self.capacity, bins_allowed=self.forced)
        else:
            rounds = self.forced // self.dp_world_size
            bins = place_in_levels(
                self.items,
                capacity=self.capacity,
                rounds=rounds,
                dp_world_size=self.dp_world_size,
                waste_part=_WASTE_PART,
            )
        bins = repair(self.items, bins, capacity=self.capacity, bins_allowed=self.forced)
        if bins.max() >= self.forced:
            return None
        found = self._by_cost(bins)
        found = spread_light_bins(self.items, found) if spread else found
        return even_out_ranks(refine(self.items, found, capacity=self.capacity))

    @property
    def forced(self) -> int:
        """Bins that the footprints take however they are packed."""
        return self._round_up(-(-int(self.items.size.sum()) // self.capacity))

    def _balanced(self) -> Arrangement:
        """The best of several placements; those of the baselines are among them, so it is never worse."""
        first_fit = place(self.items, capacity=self.capacity, rule=Rule.FIRST_FIT)
        even = self._even_bins(first_fit)
        found = [self._by_cost(even)]
        if self._is_minimal(found[0], EVEN) and found[0].duration <= self._in_order(first_fit).duration:
            return even_out_ranks(found[0])
        found.append(self._by_cost(first_fit))
        # Bins sorted by cost last as long as the baselines at most, which arrange the same ones otherwise.
        limit = min(each.duration for each in found)
        for bins in self._other_bins(self._count(first_fit)):
            found.append(self._by_cost(bins))
            if self._is_minimal(found[-1], _NEARLY_EVEN):
                found[-1] = refine(self.items, found[-1], capacity=self.capacity)
            if self._is_minimal(found[-1], EVEN) and found[-1].duration <= limit:
                return even_out_ranks(found[-1])
        found.sort(key=_merit)
        found += [
            refine(self.items, arrangement, capacity=self.capacity)
            for arrangement in found[: 1 if self._many else _REFINED]
        ]
        best = min(found, key=_merit)
        if best.duration > limit:
            limit = min(self._in_order(first_fit).duration, self._by_rank_sums(even).duration)
            best = min((each for each in found if each.duration <= limit), key=_merit)
        return even_out_ranks(best)

    @property
    def _many(self) -> bool:
        return len(self.items) > _MANY

    def _is_minimal(self, arrangement: Arrangement, part: int) -> bool:
        """Whether it has as few rounds as can be, and lasts hardly longer than it must."""
        return arrangement.numbers.size == self.forced and arrangement.is_even(part)

    def _other_bins(self, most: int) -> Iterator[Bins]:
        """Placements beside those of the baselines, into at most `most` bins."""
        if self.known is not None and self._count(self.known) <= most:
            yield self.known
        for bins_allowed in (most,) if self._many else sorted({self.forced, most}):
            for placed in self._into(bins_allowed):
                bins = repair(self.items, placed, capacity=self.capacity, bins_allowed=bins_allowed)
                if bins.max() < bins_allowed:
                    yield bins

    def _into(self, bins_allowed: int) -> Iterator[Bins]:
        """Placements into `bins_allowed` bins, where these suffice; else they are no such thing."""
        equally_full = place_equally_full(self.items, capacity=self.capacity, bins_allowed=bins_allowed)
        yield equally_full
        if not self._many or equally_full.max() >= bins_allowed:
            yield place(self.items, capacity=self.capacity, rule=Rule.BEST_FIT, most=bins_allowed)
        rounds = bins_allowed // self.dp_world_size
        if rounds <= _IN_LEVELS and int(self.items.cost[0]) * bins_allowed > int(self.items.cost.sum()):
            yield place_in_levels(self.items, capacity=self.capacity, rounds=rounds, dp_world_size=self.dp_world_size)

    def _even_bins(self, first_fit: Bins) -> Bins:
        """Bins of about equal cost where that takes no more rounds than first-fit, else first-fit's; none empty."""
        most, opened = self._count(first_fit), min(self.forced, len(self.items))
        cheapest = place_cheapest(self.items, capacity=self.capacity, opened=opened, most=most)
        bins = cheapest if cheapest.max() < most else first_fit
        return split_costliest(self.items, bins, self._count(bins))

    def _by_rank_sums(self, bins: Bins) -> Arrangement:
        return by_rank_sums(self.items, bins, rounds=self._rounds(bins), dp_world_size=self.dp_world_size)

    def _by_cost(self, bins: Bins) -> Arrangement:
        return by_cost(self.items, bins, rounds=self._rounds(bins), dp_world_size=self.dp_world_size)

    def _in_order(self, bins: Bins) -> Arrangement:
        return in_bin_order(self.items, bins, rounds=self._rounds(bins), dp_world_size=self.dp_world_size)

    def _rounds(self, bins: Bins) -> int:
        return self._count(bins) // self.dp_world_size

    def _count(self, bins: Bins) -> int:
        """Bins, the empty ones of the last round too."""
        return self._round_up(int(bins.max()) + 1)

    def _round_up(self, number: int) -> int:
        return -(-(number + self.beside) // self.step) * self.step - self.beside


def _merit(arrangement: Arrangement) -> tuple[int, int]:
    """Fewer rounds first, then the shorter one."""
    return len(arrangement.numbers), arrangement.duration
