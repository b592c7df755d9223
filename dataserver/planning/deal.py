"""The deal of a lookahead window: which of its steps gets which of its samples.

A window of W steps is packed as one, so that long samples meet long ones, and its rounds are
dealt out to the steps, as many to each and about as many tokens. The deal is a pure function
of the window's lengths and of what the cursor carries (`Window`), so every server, and every
resume at another number of ranks, finds the same one.
"""

from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import NDArray

from dataserver.cursor import Deal
from dataserver.packing.figures import cost_table
from dataserver.packing.modality import HasImages, pack_by_modality
from dataserver.packing.pack import CostModel, Filling, Rounds
from dataserver.run_spec import PackingPolicy

# A step may be off its share of tokens by this part of the share.
_TOLERANCE = 20

# Ways to pack a window: the best, or else those whose rounds have about as many tokens each.
_FILLINGS = ((None, False), *((filling, spread) for spread in (False, True) for filling in Filling))


@dataclass(frozen=True, slots=True)
class DealtSamples:
    """`steps`: the step, 0..W-1, of each sample, int64[n].

    `rounds`: for each step the rounds that it was dealt, as indices into the window; empty where
    single samples were dealt.
    """

    steps: NDArray[np.int64]
    rounds: tuple[Rounds, ...] = ()


def deal_window(lengths: NDArray[np.int64], steps: int, deal: Deal, has_images: HasImages = None) -> DealtSamples:
    """Deal the samples of a window, of `lengths` (int64[n], n >= steps), out to its steps.

    No step is empty, and each has its share `sum(lengths) / steps` of the tokens, give or take a
    twentieth of it; where the samples are too long for that, give or take the longest.
    """
    found = []
    if len(lengths) >= deal.dp_world_size * steps:
        for filling, spread in _FILLINGS:
            rounds = _packed(lengths, has_images, steps, deal, filling=filling, spread=spread)
            dealt = _deal_rounds(lengths, steps, rounds)
            error = _share_error(lengths, dealt.steps, steps)
            if error <= max(int(lengths.max()) * steps, int(lengths.sum()) // _TOLERANCE):
                found.append((error * _TOLERANCE > lengths.sum(), _duration(lengths, rounds, deal), dealt))
            if found and not found[-1][0] and filling is None:
                break
    if not found:
        return DealtSamples(_deal_samples(lengths, steps))
    return min(found, key=lambda each: each[:2])[2]


def _duration(lengths: NDArray[np.int64], rounds: Rounds, deal: Deal) -> int:
    """The sum over rounds of the highest cost."""
    return int(cost_table(lengths, rounds, CostModel(deal.cost_linear, deal.cost_quadratic)).max(axis=1).sum())


def _packed(
    lengths: NDArray[np.int64], has_images: HasImages, steps: int, deal: Deal, *, filling: Filling | None, spread: bool
) -> Rounds:
    rounds, _ = pack_by_modality(
        lengths,
        has_images,
        dp_world_size=deal.dp_world_size,
        capacity=deal.micro_batch_tokens,
        alignment=deal.alignment,
        policy=PackingPolicy(deal.policy),
        cost=CostModel(deal.cost_linear, deal.cost_quadratic),
        round_multiple=steps,
        filling=filling,
        spread=spread,
    )
    return rounds


def _deal_rounds(lengths: NDArray[np.int64], steps: int, rounds: Rounds) -> DealtSamples:
    """Deal whole rounds: the one with the most tokens to the step with the fewest that lacks rounds."""
    members = [np.concatenate(group) for group in rounds]
    tokens = [int(lengths[group].sum()) for group in members]
    sums = [0] * steps
    of_steps: list[list[int]] = [[] for _ in range(steps)]
    dealt = np.empty(len(lengths), dtype=np.int64)
    for number in sorted(range(len(rounds)), key=lambda number: (-tokens[number], number)):
        lacking = (step for step in range(steps) if len(of_steps[step]) < len(rounds) // steps)
        step = min(lacking, key=lambda step: (sums[step], step))
        dealt[members[number]] = step
        sums[step] += tokens[number]
        of_steps[step].append(number)
    return DealtSamples(dealt, tuple(tuple(rounds[number] for number in numbers) for numbers in of_steps))


def _share_error(lengths: NDArray[np.int64], dealt: NDArray[np.int64], steps: int) -> int:
    """By how much the tokens of a step miss their share at most, times `steps`; all of them where one is empty."""
    tokens = np.zeros(steps, dtype=np.int64)
    np.add.at(tokens, dealt, lengths)
    total = int(lengths.sum())
    return total * steps if tokens.min() == 0 else int(np.abs(tokens * steps - total).max())


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
