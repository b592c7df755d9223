"""Packing: which samples share a micro-batch, and which rank gets it in which round.

    lengths ──Items──> place (placement.py) ──Bins──> arrange (rounds.py) ──> rounds

Every rank gets the same number of micro-batches, because ranks meet in each of them; where
samples are too few, bins stay empty. Equal input gives equal output, to the last tie.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidRequestError, InvalidSpecError
from dataserver.packing.cost import CostModel
from dataserver.packing.levels import place_in_levels
from dataserver.packing.placement import Bins, Items, Rule, place
from dataserver.packing.rounds import Arrangement, Rounds, by_cost, even_out_ranks, in_bin_order, index_arrays
from dataserver.run_spec import PackingPolicy

__all__ = ["CostModel", "Rounds", "pack"]


def pack(
    lengths: NDArray[np.int64],
    *,
    dp_world_size: int,
    capacity: int,
    alignment: int,
    policy: PackingPolicy,
    cost: CostModel,
    round_multiple: int = 1,
) -> Rounds:
    """Pack samples of `lengths` (int64[n], n >= 1, in tokens) into rounds of `dp_world_size` bins.

    `rounds[j][r]` are the indices (int64[k], k >= 0, ascending) of the samples that rank r gets in
    round j. The footprints of a bin, each length rounded up to a multiple of `alignment`, sum up to
    at most `capacity`. The number of rounds is a multiple of `round_multiple`.

    `first_fit`: first-fit-decreasing, bins in the order in which they were opened.
    `balanced`: never more rounds than `first_fit`, and never a longer sum over rounds of the
    costliest bin.

    About 0.3 s for 100,000 samples of 500 tokens on one core. Raises `InvalidSpecError` for a
    sample that fits no bin.
    """
    if len(lengths) == 0 or dp_world_size < 1:
        raise InvalidRequestError(
            f"cannot pack {len(lengths)} samples for {dp_world_size} ranks: give at least one of each"
        )
    items = _items(lengths, alignment, cost)
    if items.size[0] > capacity:
        raise InvalidSpecError(
            f"a sample of {int(lengths.max())} tokens takes {items.size[0]} at alignment {alignment}, "
            f"more than the {capacity} of a micro-batch: raise micro_batch_tokens or lower max_length"
        )
    step = dp_world_size * round_multiple
    first_fit = place(items, capacity=capacity, rule=Rule.FIRST_FIT, opened=0)
    rounds = _round_up(len(first_fit), step) // dp_world_size
    baseline = in_bin_order(first_fit, rounds=rounds, dp_world_size=dp_world_size)
    if policy is PackingPolicy.FIRST_FIT:
        return index_arrays(baseline)
    return index_arrays(even_out_ranks(_balanced(items, baseline, capacity, dp_world_size, step)))


def _balanced(items: Items, baseline: Arrangement, capacity: int, dp_world_size: int, step: int) -> Arrangement:
    """The best of several placements, none of them worse than `baseline` in rounds or in duration."""
    best = by_cost(baseline.bins, rounds=len(baseline.numbers), dp_world_size=dp_world_size)
    forced = _round_up(-(-sum(items.size) // capacity), step)
    for bins_allowed in sorted({forced, len(baseline.numbers) * dp_world_size}):
        bins = _placed_within(items, capacity, bins_allowed, dp_world_size)
        if bins is None:
            continue
        found = by_cost(bins, rounds=bins_allowed // dp_world_size, dp_world_size=dp_world_size)
        if found.duration <= baseline.duration and _merit(found) < _merit(best):
            best = found
    return best


def _placed_within(items: Items, capacity: int, bins_allowed: int, dp_world_size: int) -> Bins | None:
    """A placement into `bins_allowed` bins; the ways that even out costs better need more slack, so they go first."""
    placements: tuple[Callable[[], Bins], ...] = (
        lambda: place_in_levels(items, capacity=capacity, bins_allowed=bins_allowed, dp_world_size=dp_world_size),
        lambda: place(items, capacity=capacity, rule=Rule.CHEAPEST, opened=min(bins_allowed, len(items.index))),
        lambda: place(items, capacity=capacity, rule=Rule.BEST_FIT, opened=0),
    )
    for placement in placements:
        bins = placement()
        if len(bins) <= bins_allowed:
            return bins
    return None


def _merit(arrangement: Arrangement) -> tuple[int, int]:
    """Fewer rounds first, then the shorter one."""
    return len(arrangement.numbers), arrangement.duration


def _items(lengths: NDArray[np.int64], alignment: int, cost: CostModel) -> Items:
    order = np.argsort(-lengths, kind="stable")
    descending = lengths[order]
    footprints = -(-descending // alignment) * alignment
    return Items(index=order.tolist(), size=footprints.tolist(), cost=cost.of(descending))


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
