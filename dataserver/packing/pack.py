"""Packing: which samples share a micro-batch, and which rank gets it in which round.

    lengths ──Items──> bins (placement, cheapest, levels) ──> rounds (rounds, rank_sums) ──refine──> rounds

Every rank gets the same number of micro-batches, because ranks meet in each of them; where
samples are too few, bins stay empty. Equal input gives equal output, to the last tie; another
order of the samples can change which of two equally long ones goes where, and nothing else,
except for the policies that follow the order, `sequential` and `none`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidRequestError, InvalidSpecError
from dataserver.packing.cheapest import place_cheapest
from dataserver.packing.cost import CostModel
from dataserver.packing.full import place_equally_full
from dataserver.packing.levels import place_in_levels
from dataserver.packing.placement import Items, Rule, place, place_in_order
from dataserver.packing.rank_sums import by_rank_sums, split_costliest
from dataserver.packing.refine import refine
from dataserver.packing.rounds import (
    Arrangement,
    Rounds,
    by_cost,
    even_out_ranks,
    in_bin_order,
    index_arrays,
    spread_light_bins,
)
from dataserver.run_spec import PackingPolicy

__all__ = ["CostModel", "Rounds", "bins_needed", "pack"]

Bins = NDArray[np.int64]

# Of all placements the best ones are refined, because that takes as long as several placements.
_REFINED = 2


def pack(
    lengths: NDArray[np.int64],
    *,
    dp_world_size: int,
    capacity: int,
    alignment: int,
    policy: PackingPolicy,
    cost: CostModel,
    round_multiple: int = 1,
    rounds_beside: int = 0,
    known: Rounds = (),
    equally_full: bool = False,
    spread: bool = False,
) -> Rounds:
    """Pack samples of `lengths` (int64[n], n >= 1, in tokens) into rounds of `dp_world_size` bins.

    `rounds[j][r]` are the indices (int64[k], k >= 0, ascending) of the samples that rank r gets in
    round j. The footprints of a bin, each length rounded up to a multiple of `alignment`, sum up to
    at most `capacity`. The number of rounds, with `rounds_beside` that hold other samples, is a multiple of
    `round_multiple`.

    `balanced`: never more rounds than `first_fit`, and never a longer sum over rounds of the
    costliest bin than `first_fit` or `cost_balanced`. `known` is a packing that it may use if that is the best.
    With `equally_full` it gives up the second promise for rounds of about as many tokens each, and with
    `spread` even more of it: bins that are not full then go to all rounds alike.
    `cost_balanced`: bins of equal cost, then ranks of equal sums.
    `first_fit`: first-fit-decreasing, bins in the order in which they were opened.
    `sequential`: next-fit. `none`: one sample a bin. Both in the order of the samples.

    About 0.1 s of CPU time for 100,000 samples of 500 tokens. Raises `InvalidSpecError` for a
    sample that fits no bin.
    """
    if len(lengths) == 0 or dp_world_size < 1:
        raise InvalidRequestError(
            f"cannot pack {len(lengths)} samples for {dp_world_size} ranks: give at least one of each"
        )
    footprints = footprints_of(lengths, capacity=capacity, alignment=alignment)
    if policy in {PackingPolicy.SEQUENTIAL, PackingPolicy.NONE}:
        order = np.arange(len(lengths))
    else:
        order = np.argsort(-lengths, kind="stable")
    items = Items(index=order, size=footprints[order], cost=cost.scaled(lengths)[order])
    given = _bins_of(known)[order] if known else None
    packing = _Packing(
        items, capacity, dp_world_size, dp_world_size * round_multiple, dp_world_size * rounds_beside, given
    )
    arrangement = packing.equally_full(spread=spread) if equally_full and policy is PackingPolicy.BALANCED else None
    return index_arrays(items, arrangement or packing.arranged(policy))


def footprints_of(lengths: NDArray[np.int64], *, capacity: int, alignment: int) -> NDArray[np.int64]:
    """`lengths` rounded up to multiples of `alignment`; raises `InvalidSpecError` for one above `capacity`."""
    footprints = -(-lengths // alignment) * alignment
    if footprints.max(initial=0) > capacity:
        raise InvalidSpecError(
            f"a sample of {int(lengths.max())} tokens takes {int(footprints.max())} at alignment {alignment}, "
            f"more than the {capacity} of a micro-batch: raise micro_batch_tokens or lower max_length"
        )
    return footprints


def bins_needed(footprints: NDArray[np.int64], *, capacity: int, policy: PackingPolicy) -> int:
    """Into how many bins `pack` gets samples at most, before it rounds up to the ranks."""
    if policy is PackingPolicy.NONE:
        return len(footprints)
    if policy is PackingPolicy.SEQUENTIAL:
        return int(place_in_order(footprints, capacity=capacity)[-1]) + 1
    descending = -np.sort(-footprints)
    items = Items(index=descending, size=descending, cost=descending)
    rules = (Rule.FIRST_FIT, Rule.BEST_FIT) if policy is PackingPolicy.BALANCED else (Rule.FIRST_FIT,)
    return min(int(place(items, capacity=capacity, rule=rule).max()) + 1 for rule in rules)


def _merit(arrangement: Arrangement) -> tuple[int, int]:
    """Fewer rounds first, then the shorter one."""
    return len(arrangement.numbers), arrangement.duration


def _bins_of(rounds: Rounds) -> Bins:
    """The bin of each sample, bins numbered round by round."""
    members = [bin_ for group in rounds for bin_ in group]
    bins = np.empty(sum(map(len, members)), dtype=np.int64)
    bins[np.concatenate(members)] = np.repeat(np.arange(len(members)), [len(bin_) for bin_ in members])
    return bins


@dataclass(frozen=True, slots=True)
class _Packing:
    """What all policies know. `step`: bins with those `beside` are a multiple of it. `known`: bins from outside."""

    items: Items
    capacity: int
    dp_world_size: int
    step: int
    beside: int
    known: Bins | None

    def arranged(self, policy: PackingPolicy) -> Arrangement:
        if policy is PackingPolicy.NONE:
            return self._in_order(np.arange(len(self.items)))
        if policy is PackingPolicy.SEQUENTIAL:
            return self._in_order(place_in_order(self.items.size, capacity=self.capacity))
        first_fit = place(self.items, capacity=self.capacity, rule=Rule.FIRST_FIT)
        if policy is PackingPolicy.FIRST_FIT:
            return self._in_order(first_fit)
        if policy is PackingPolicy.COST_BALANCED:
            return self._by_rank_sums(self._even_bins(first_fit))
        return self._balanced(first_fit)

    def equally_full(self, *, spread: bool) -> Arrangement | None:
        """Rounds with about as many tokens each; None where that takes more of them than they must be."""
        bins = place_equally_full(self.items, capacity=self.capacity, bins_allowed=self.forced)
        if bins.max() >= self.forced:
            return None
        found = self._by_cost(bins)
        found = spread_light_bins(self.items, found) if spread else found
        return even_out_ranks(refine(self.items, found, capacity=self.capacity))

    @property
    def forced(self) -> int:
        """Bins that the footprints take however they are packed."""
        return self._round_up(-(-int(self.items.size.sum()) // self.capacity))

    def _balanced(self, first_fit: Bins) -> Arrangement:
        """The best of several placements; those of the baselines are among them, so it is never worse."""
        even = self._even_bins(first_fit)
        first = self._by_cost(even)
        limit = self._in_order(first_fit).duration
        if len(first.numbers) == self.forced // self.dp_world_size and first.is_even and first.duration <= limit:
            return even_out_ranks(first)
        limit = min(limit, self._by_rank_sums(even).duration)
        found = [self._by_cost(bins) for bins in (even, first_fit, *self._other_bins(self._count(first_fit)))]
        found.sort(key=_merit)
        for arrangement in found[:_REFINED]:
            found.append(refine(self.items, arrangement, capacity=self.capacity))
            if found[-1].is_even:
                break
        return even_out_ranks(min((each for each in found if each.duration <= limit), key=_merit))

    def _other_bins(self, most: int) -> Iterator[Bins]:
        """Placements beside those of the baselines, into at most `most` bins."""
        if self.known is not None and self._count(self.known) <= most:
            yield self.known
        equally_full = place_equally_full(self.items, capacity=self.capacity, bins_allowed=self.forced)
        best_fit = place(self.items, capacity=self.capacity, rule=Rule.BEST_FIT)
        for bins in (equally_full, best_fit):
            if self._count(bins) <= most:
                yield bins
        for bins_allowed in sorted({self.forced, most}):
            if self.items.cost[0] * bins_allowed <= self.items.cost.sum():
                continue
            levels = place_in_levels(
                self.items, capacity=self.capacity, bins_allowed=bins_allowed, dp_world_size=self.dp_world_size
            )
            if levels.max() < bins_allowed:
                yield levels

    def _even_bins(self, first_fit: Bins) -> Bins:
        """Bins of about equal cost where that takes no more rounds than first-fit, else first-fit's; none empty."""
        bins = place_cheapest(self.items, capacity=self.capacity, opened=min(self.forced, len(self.items)))
        bins = bins if self._count(bins) <= self._count(first_fit) else first_fit
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
        """Bins, the empty ones that fill the last round included."""
        return self._round_up(int(bins.max()) + 1)

    def _round_up(self, number: int) -> int:
        return -(-(number + self.beside) // self.step) * self.step - self.beside
