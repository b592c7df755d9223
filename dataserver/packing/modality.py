"""One modality per round: samples of text and samples with images are packed apart.

    lengths, which have images ──> images into as few rounds as they take
                               └─> text into as many as complete the count ──> text rounds, then image rounds

If one rank ran its vision tower in a round in which another had text only, their collectives would not meet.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.cost import CostModel
from dataserver.packing.pack import Filling, bins_needed, pack
from dataserver.packing.rounds import Rounds
from dataserver.run_spec import PackingPolicy

HasImages = NDArray[np.bool_] | None
"""Which samples have images, bool[n]; None where none has."""


def pack_by_modality(
    lengths: NDArray[np.int64],
    has_images: HasImages,
    *,
    dp_world_size: int,
    capacity: int,
    alignment: int,
    policy: PackingPolicy,
    cost: CostModel,
    round_multiple: int = 1,
    known: Rounds = (),
    filling: Filling | None = None,
    spread: bool = False,
) -> tuple[Rounds, int]:
    """What `pack` does, with text and images in rounds of their own; returns the rounds and how many are of images.

    Rounds of images are the last ones. Samples of one modality are packed exactly as by `pack`. Each round of `known`
    has one modality.
    """
    packed = partial(
        pack,
        dp_world_size=dp_world_size,
        capacity=capacity,
        alignment=alignment,
        policy=policy,
        cost=cost,
        round_multiple=round_multiple,
        filling=filling,
        spread=spread,
    )
    if has_images is None or not has_images.any():
        return packed(lengths, known=known), 0
    if has_images.all():
        rounds = packed(lengths, known=known)
        return rounds, len(rounds)
    text, images = np.flatnonzero(~has_images), np.flatnonzero(has_images)
    of_images = packed(lengths[images], known=_within(known, images), round_multiple=1)
    of_text = packed(lengths[text], known=_within(known, text), rounds_beside=len(of_images))
    return (*_renumbered(of_text, text), *_renumbered(of_images, images)), len(of_images)


def rounds_needed(
    footprints: NDArray[np.int64], has_images: HasImages, *, capacity: int, policy: PackingPolicy, dp_world_size: int
) -> int:
    """Into how many rounds `pack_by_modality` gets samples at most."""
    groups = [footprints] if has_images is None else [footprints[~has_images], footprints[has_images]]
    bins = [bins_needed(group, capacity=capacity, policy=policy) for group in groups if len(group)]
    return sum(-(-needed // dp_world_size) for needed in bins)


def _within(rounds: Rounds, members: NDArray[np.int64]) -> Rounds:
    """The rounds that hold `members` (int64[k], ascending), numbered as these are."""
    kept = (group for group in rounds if np.isin(np.concatenate(group)[:1], members).any())
    return tuple(tuple(np.searchsorted(members, bin_) for bin_ in group) for group in kept)


def _renumbered(rounds: Rounds, members: NDArray[np.int64]) -> Rounds:
    return tuple(tuple(members[bin_] for bin_ in group) for group in rounds)
