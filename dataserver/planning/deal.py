"""The deal of a lookahead window: which of its steps gets which of its samples.

A window of W steps is packed as one, so that long samples meet long ones, and its rounds are
dealt out to the steps, as many to each and about as many tokens. The deal is a pure function
of the window's lengths and of what the cursor carries (`Window`), so every server, and every
resume at another number of ranks, finds the same one.
"""

from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import NDArray

from dataserver.cursor import Deal
from dataserver.packing.pack import CostModel, pack
from dataserver.run_spec import PackingPolicy

# A step may be off its share of tokens by the longest sample, as without lookahead, or by this
# part of the share.
_TOLERANCE = 16


def deal_window(lengths: NDArray[np.int64], steps: int, deal: Deal) -> NDArray[np.int64]:
    """The step, 0..steps-1, of each sample of a window, as int64[n]; n >= steps.

    No step is empty, and each has its share `sum(lengths) / steps` of the tokens, give or take
    the longest sample or a sixteenth of the share.
    """
    if len(lengths) >= deal.dp_world_size * steps:
        dealt = _deal_rounds(lengths, steps, deal)
        if _is_fair(lengths, dealt, steps):
            return dealt
    return _deal_samples(lengths, steps)


def _deal_rounds(lengths: NDArray[np.int64], steps: int, deal: Deal) -> NDArray[np.int64]:
    """Deal whole rounds: the one with the most tokens to the step with the fewest that lacks rounds."""
    rounds = pack(
        lengths,
        dp_world_size=deal.dp_world_size,
        capacity=deal.micro_batch_tokens,
        alignment=deal.alignment,
        policy=PackingPolicy(deal.policy),
        cost=CostModel(deal.cost_linear, deal.cost_quadratic),
        round_multiple=steps,
    )
    members = [np.concatenate(group) for group in rounds]
    tokens = [int(lengths[group].sum()) for group in members]
    sums, counts = [0] * steps, [0] * steps
    dealt = np.empty(len(lengths), dtype=np.int64)
    for number in sorted(range(len(rounds)), key=lambda number: (-tokens[number], number)):
        lacking = (step for step in range(steps) if counts[step] < len(rounds) // steps)
        step = min(lacking, key=lambda step: (sums[step], step))
        dealt[members[number]] = step
        sums[step] += tokens[number]
        counts[step] += 1
    return dealt


def _is_fair(lengths: NDArray[np.int64], dealt: NDArray[np.int64], steps: int) -> bool:
    """Whether every step has a sample and its share of tokens, within the tolerance; in whole numbers."""
    tokens = np.zeros(steps, dtype=np.int64)
    np.add.at(tokens, dealt, lengths)
    total = int(lengths.sum())
    allowed = max(int(lengths.max()) * steps, total // _TOLERANCE)
    return int(tokens.min()) > 0 and all(abs(step_tokens * steps - total) <= allowed for step_tokens in tokens.tolist())


def _deal_samples(lengths: NDArray[np.int64], steps: int) -> NDArray[np.int64]:
    """Deal single samples, the longest first, to the step with the fewest tokens.

    The first `steps` of them go to as many steps, and in the end no two steps differ by more
    than the longest sample (Graham's rule).
    """
    dealt = np.empty(len(lengths), dtype=np.int64)
    fewest = [(0, step) for step in range(steps)]
    heapify(fewest)
    for index in np.argsort(-lengths, kind="stable").tolist():
        tokens, step = fewest[0]
        dealt[index] = step
        heapreplace(fewest, (tokens + int(lengths[index]), step))
    return dealt
