"""Packing: every sample in one bin, none overfull, equal counts, and `balanced` never worse than `first_fit`."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataserver.errors import InvalidRequestError, InvalidSpecError
from dataserver.packing.figures import packing_figures
from dataserver.packing.pack import CostModel, pack
from dataserver.run_spec import PackingPolicy

CAPACITY = 128
COSTS = [CostModel(1, 0), CostModel(0, 1), CostModel(50, 1), CostModel(1_133_248_512, 114_688)]

lengths_of_steps = st.lists(st.integers(2, 96), min_size=1, max_size=120).map(
    lambda some: np.array(some, dtype=np.int64)
)
ranks_of_steps = st.integers(1, 12)
alignments = st.sampled_from([1, 2, 7, 16, 32])


def packed(lengths, ranks, policy, cost=COSTS[0], alignment=1, capacity=CAPACITY, **more):
    return pack(lengths, dp_world_size=ranks, capacity=capacity, alignment=alignment, policy=policy, cost=cost, **more)


def footprint(lengths, alignment):
    return int(np.sum(-(-lengths // alignment) * alignment))


@pytest.mark.parametrize("policy", PackingPolicy)
@given(lengths=lengths_of_steps, ranks=ranks_of_steps, alignment=alignments, cost=st.sampled_from(COSTS))
def test_every_sample_is_in_one_bin_and_no_bin_is_over_capacity(policy, lengths, ranks, alignment, cost):
    rounds = packed(lengths, ranks, policy, cost, alignment)
    members = [bin_ for group in rounds for bin_ in group]
    assert {len(group) for group in rounds} == {ranks}
    assert all(bin_.dtype == np.int64 and np.all(np.diff(bin_) > 0) for bin_ in members)
    assert sorted(np.concatenate(members).tolist()) == list(range(len(lengths)))
    assert max(footprint(lengths[bin_], alignment) for bin_ in members) <= CAPACITY


@settings(max_examples=300)
@given(lengths=lengths_of_steps, ranks=ranks_of_steps, alignment=alignments, cost=st.sampled_from(COSTS))
def test_balanced_has_no_more_rounds_and_no_more_inflation_than_first_fit(lengths, ranks, alignment, cost):
    balanced = packed(lengths, ranks, PackingPolicy.BALANCED, cost, alignment)
    first_fit = packed(lengths, ranks, PackingPolicy.FIRST_FIT, cost, alignment)
    assert len(balanced) <= len(first_fit)
    inflations = [
        packing_figures(lengths, rounds, capacity=CAPACITY, cost=cost).round_inflation
        for rounds in (balanced, first_fit)
    ]
    assert inflations[0] <= inflations[1]


@given(lengths=lengths_of_steps, ranks=ranks_of_steps, cost=st.sampled_from(COSTS))
def test_no_bin_of_a_later_round_is_costlier_than_one_of_an_earlier(lengths, ranks, cost):
    costs = np.array(cost.of(lengths), dtype=object)
    rounds = packed(lengths, ranks, PackingPolicy.BALANCED, cost)
    table = [[sum(costs[bin_].tolist()) for bin_ in group] for group in rounds]
    assert all(min(earlier) >= max(later) for earlier, later in itertools.pairwise(table))


@given(lengths=lengths_of_steps, ranks=ranks_of_steps)
def test_first_fit_leaves_no_two_bins_that_would_fit_into_one(lengths, ranks):
    bins = len(packed(lengths, 1, PackingPolicy.FIRST_FIT))
    assert (bins - 1) * CAPACITY < 2 * int(lengths.sum())
    assert len(packed(lengths, ranks, PackingPolicy.FIRST_FIT)) == -(-bins // ranks)


@pytest.mark.parametrize("policy", PackingPolicy)
@given(lengths=lengths_of_steps, ranks=ranks_of_steps)
def test_equal_input_gives_equal_output(policy, lengths, ranks):
    first, second = (packed(lengths.copy(), ranks, policy, COSTS[2]) for _ in range(2))
    assert [[bin_.tolist() for bin_ in group] for group in first] == [
        [bin_.tolist() for bin_ in group] for group in second
    ]


@pytest.mark.parametrize("policy", PackingPolicy)
@given(lengths=lengths_of_steps, ranks=ranks_of_steps, multiple=st.integers(1, 5))
def test_the_number_of_rounds_is_the_multiple_that_was_asked_for(policy, lengths, ranks, multiple):
    rounds = packed(lengths, ranks, policy, round_multiple=multiple)
    assert len(rounds) % multiple == 0
    assert sum(len(bin_) for group in rounds for bin_ in group) == len(lengths)


def test_fewer_samples_than_ranks_leave_bins_empty():
    spread = packed(np.array([5, 9, 7]), 8, PackingPolicy.BALANCED)
    assert [bin_.tolist() for bin_ in spread[0]] == [[1], [2], [0], [], [], [], [], []]
    together = packed(np.array([5, 9, 7]), 8, PackingPolicy.FIRST_FIT)
    assert [bin_.tolist() for bin_ in together[0]] == [[0, 1, 2], [], [], [], [], [], [], []]
    assert len(spread) == len(together) == 1


def test_alignment_counts_footprints_and_not_tokens():
    lengths = np.array([33, 33, 33])
    assert len(packed(lengths, 1, PackingPolicy.BALANCED, alignment=1, capacity=100)) == 1
    assert len(packed(lengths, 1, PackingPolicy.BALANCED, alignment=32, capacity=128)) == 2


def test_one_token_over_the_forced_bins_takes_another_round():
    assert len(packed(np.full(4, 64), 2, PackingPolicy.BALANCED)) == 1
    assert len(packed(np.array([64, 64, 64, 64, 2]), 2, PackingPolicy.BALANCED)) == 2


def test_the_costliest_bins_meet_in_one_round():
    lengths = np.array([120, 8, 8, 118, 8, 8])
    rounds = packed(lengths, 2, PackingPolicy.BALANCED, COSTS[2], capacity=120)
    assert sorted(bin_.tolist() for bin_ in rounds[0]) == [[0], [3]]


def test_rank_sums_are_evened_out_over_rounds():
    lengths = np.array([100, 90, 80, 70, 60, 50])
    figures = packing_figures(
        lengths, packed(lengths, 2, PackingPolicy.BALANCED, capacity=100), capacity=100, cost=COSTS[0]
    )
    assert figures.rank_imbalance == pytest.approx(230 * 2 / 450)  # 100+70+60 against 90+80+50; in bin order 240
    assert figures.round_inflation == pytest.approx((100 + 80 + 60) * 2 / 450)


def test_a_sample_above_the_capacity_is_refused_with_the_numbers():
    with pytest.raises(InvalidSpecError, match=r"130 tokens takes 144 at alignment 16, more than the 136"):
        packed(np.array([5, 130]), 2, PackingPolicy.BALANCED, alignment=16, capacity=136)


@pytest.mark.parametrize(("lengths", "ranks"), [([], 1), ([5], 0), ([5], -1)])
def test_nothing_to_pack_and_no_ranks_are_refused(lengths, ranks):
    with pytest.raises(InvalidRequestError, match=f"{len(lengths)} samples for {ranks} ranks"):
        packed(np.array(lengths, dtype=np.int64), ranks, PackingPolicy.BALANCED)


def test_figures_of_a_known_plan():
    lengths = np.array([6, 2, 4])
    rounds = ((np.array([0]), np.array([1])), (np.array([2]), np.array([], dtype=np.int64)))
    figures = packing_figures(lengths, rounds, capacity=10, cost=CostModel(1, 0))
    assert figures.token_efficiency == pytest.approx(12 / 40)
    assert figures.rank_imbalance == pytest.approx(10 / 6)
    assert figures.round_inflation == pytest.approx((6 + 4) / 6)


def test_costs_follow_the_model():
    lengths = np.array([16, 32], dtype=np.int64)
    assert CostModel(17_408, 64).of(lengths) == [589_824 // 2, 622_592]
    assert CostModel(2**50, 2**50).of(np.array([2**28])) == [2**50 * 2**28 * (2**28 + 1)]


def test_balanced_beats_first_fit_by_far_where_there_is_slack():
    rng = np.random.default_rng(5)
    lengths = np.clip(np.exp(rng.normal(np.log(330), 1.0, 3100)), 2, 4096).astype(np.int64)
    figures = {
        policy: packing_figures(
            lengths, packed(lengths, 64, policy, COSTS[3], capacity=32_768), capacity=32_768, cost=COSTS[3]
        )
        for policy in PackingPolicy
    }
    assert figures[PackingPolicy.BALANCED].round_inflation < 1.001
    assert figures[PackingPolicy.FIRST_FIT].round_inflation > 1.3


@pytest.mark.parametrize("policy", PackingPolicy)
def test_a_hundred_thousand_samples_are_packed_without_a_stall(policy):
    """Some tenths of a second; a scan over bins for each sample takes minutes."""
    rng = np.random.default_rng(5)
    lengths = np.clip(np.exp(rng.normal(np.log(330), 1.0, 100_000)), 2, 4096).astype(np.int64)
    begin = time.process_time()
    rounds = packed(lengths, 64, policy, COSTS[3], capacity=32_768)
    assert time.process_time() - begin < 3
    assert len(rounds) == -(-int(lengths.sum()) // (64 * 32_768))
