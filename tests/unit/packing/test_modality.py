"""Text and images share no round, whatever the samples; text alone is packed as if there were no images at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.packing.cost import CostModel
from dataserver.packing.figures import packing_figures
from dataserver.packing.modality import pack_by_modality, rounds_needed
from dataserver.packing.pack import Filling, footprints_of, pack
from dataserver.run_spec import PackingPolicy

CAPACITY = 64
mixes = st.lists(st.tuples(st.integers(2, CAPACITY), st.booleans()), min_size=1, max_size=60)
flags = st.fixed_dictionaries({"filling": st.sampled_from([None, *Filling]), "spread": st.booleans()})


def rules(ranks, policy, alignment=1, **more):
    return {
        "dp_world_size": ranks, "capacity": CAPACITY, "alignment": alignment, "policy": policy,
        "cost": CostModel(50, 1), **more,
    }  # fmt: skip


def split(mix):
    return np.array([length for length, _ in mix], dtype=np.int64), np.array([image for _, image in mix])


def listed(rounds):
    return [[bin_.tolist() for bin_ in group] for group in rounds]


@pytest.mark.parametrize("policy", PackingPolicy)
@given(mix=mixes, ranks=st.integers(1, 6), alignment=st.sampled_from([1, 8]), multiple=st.integers(1, 4), flags=flags)
def test_every_round_has_one_modality_on_all_ranks_and_text_comes_first(policy, mix, ranks, alignment, multiple, flags):
    lengths, images = split(mix)
    rounds, image_rounds = pack_by_modality(
        lengths, images, **rules(ranks, policy, alignment, round_multiple=multiple, **flags)
    )
    assert len(rounds) % multiple == 0
    assert {len(group) for group in rounds} == {ranks}
    text = len(rounds) - image_rounds
    for number, group in enumerate(rounds):
        members = np.concatenate(group)
        assert (images[members] == (number >= text)).all()
        for bin_ in group:
            assert footprints_of(lengths[bin_], capacity=CAPACITY, alignment=alignment).sum() <= CAPACITY
    assert sorted(np.concatenate([bin_ for group in rounds for bin_ in group]).tolist()) == list(range(len(mix)))
    figures = packing_figures(lengths, rounds, capacity=CAPACITY, cost=CostModel(50, 1))
    assert 0 < figures.token_efficiency <= 1 <= figures.round_inflation


@given(mix=mixes, ranks=st.integers(1, 6), policy=st.sampled_from(PackingPolicy), multiple=st.integers(1, 4))
def test_samples_of_one_modality_are_packed_as_ever(mix, ranks, policy, multiple):
    lengths, _ = split(mix)
    same = rules(ranks, policy, round_multiple=multiple)
    expected = listed(pack(lengths, **same))
    for images, of_images in ((None, 0), (np.zeros(len(mix), bool), 0), (np.ones(len(mix), bool), len(expected))):
        rounds, image_rounds = pack_by_modality(lengths, images, **same)
        assert listed(rounds) == expected
        assert image_rounds == of_images


@pytest.mark.parametrize("policy", PackingPolicy)
@given(mix=mixes, ranks=st.integers(1, 6))
def test_it_never_takes_more_rounds_than_were_counted(policy, mix, ranks):
    lengths, images = split(mix)
    rounds, _ = pack_by_modality(lengths, images, **rules(ranks, policy))
    needed = rounds_needed(lengths, images, capacity=CAPACITY, policy=policy, dp_world_size=ranks)
    assert len(rounds) <= needed


@given(mix=mixes, ranks=st.integers(1, 4), order=st.randoms())
def test_known_rounds_are_used_within_their_modality(mix, ranks, order):
    lengths, images = split(mix)
    same = rules(ranks, PackingPolicy.BALANCED)
    first, _ = pack_by_modality(lengths, images, **same)
    known = list(first)
    order.shuffle(known)
    again, _ = pack_by_modality(lengths, images, known=tuple(known), **same)
    assert len(again) == len(first)
    cost = CostModel(50, 1)
    inflation = [
        packing_figures(lengths, rounds, capacity=CAPACITY, cost=cost).round_inflation for rounds in (first, again)
    ]
    assert inflation[1] <= inflation[0] + 1e-12
