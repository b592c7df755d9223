"""Packing: every sample in one bin, none overfull, equal counts, and `balanced` never worse than the baselines."""

import itertools
import math
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataserver.errors import InvalidRequestError, InvalidSpecError
from dataserver.packing.figures import packing_bounds, packing_figures
from dataserver.packing.pack import CostModel, footprints_of, pack
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
def test_balanced_has_no_more_rounds_and_no_more_inflation_than_the_baselines(lengths, ranks, alignment, cost):
    rounds, inflation = {}, {}
    for policy in (PackingPolicy.BALANCED, PackingPolicy.FIRST_FIT, PackingPolicy.COST_BALANCED):
        plan = packed(lengths, ranks, policy, cost, alignment)
        rounds[policy] = len(plan)
        inflation[policy] = packing_figures(lengths, plan, capacity=CAPACITY, cost=cost).round_inflation
    assert rounds.pop(PackingPolicy.BALANCED) <= min(rounds.values())
    assert inflation.pop(PackingPolicy.BALANCED) <= min(inflation.values())


@given(
    lengths=lengths_of_steps, ranks=ranks_of_steps, cost=st.sampled_from(COSTS), policy=st.sampled_from(PackingPolicy)
)
def test_no_figure_beats_its_bound(lengths, ranks, cost, policy):
    rounds = packed(lengths, ranks, policy, cost)
    figures, bounds = (
        measure(lengths, rounds, capacity=CAPACITY, cost=cost) for measure in (packing_figures, packing_bounds)
    )
    assert figures.token_efficiency <= bounds.token_efficiency
    assert figures.rank_imbalance >= bounds.rank_imbalance * (1 - 1e-9)
    assert figures.round_inflation >= bounds.round_inflation * (1 - 1e-9)


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


def test_sequential_and_none_keep_the_order_of_the_stream():
    lengths = np.array([60, 60, 60, 100, 20, 9])
    in_order = packed(lengths, 2, PackingPolicy.SEQUENTIAL)
    assert [[bin_.tolist() for bin_ in group] for group in in_order] == [[[0, 1], [2]], [[3, 4], [5]]]
    alone = packed(lengths, 4, PackingPolicy.NONE)
    assert [[bin_.tolist() for bin_ in group] for group in alone] == [[[0], [1], [2], [3]], [[4], [5], [], []]]


def test_cost_balanced_splits_the_costliest_bins_up_to_the_ranks_and_evens_out_their_sums():
    lengths = np.array([100, 64, 64, 10, 10])
    rounds = packed(lengths, 4, PackingPolicy.COST_BALANCED)
    assert sorted(bin_.tolist() for bin_ in rounds[0]) == [[0], [1], [2], [3, 4]]
    lengths = np.array([100, 90, 80, 70])
    rounds = packed(lengths, 2, PackingPolicy.COST_BALANCED, capacity=100)
    sums = [sum(int(lengths[group[rank]].sum()) for group in rounds) for rank in range(2)]
    assert sums == [170, 170]
    assert int(lengths[rounds[0][0]].sum()) > int(lengths[rounds[1][0]].sum())


@given(lengths=lengths_of_steps, ranks=ranks_of_steps, seed=st.integers(0, 2**32 - 1))
def test_another_order_of_the_samples_gives_bins_of_the_same_lengths(lengths, ranks, seed):
    shuffled = np.random.default_rng(seed).permutation(lengths)
    for policy in (PackingPolicy.BALANCED, PackingPolicy.COST_BALANCED, PackingPolicy.FIRST_FIT):
        one, other = (
            [[sorted(given[bin_].tolist()) for bin_ in group] for group in packed(given, ranks, policy, COSTS[2])]
            for given in (lengths, shuffled)
        )
        assert one == other


@pytest.mark.parametrize("policy", PackingPolicy)
@pytest.mark.parametrize(
    "lengths",
    [
        [128] * 50,
        [2] * 500,
        [128] + [2] * 300,
        [65] * 41,
        [127, 2] * 30,
        [128],
        [2],
        [64, 64, 64, 2],
        list(range(2, 97)),
    ],
    ids=["all giants", "all tiny", "one giant", "just over half", "no pair fits", "one", "one tiny", "a rest", "ramp"],
)
@pytest.mark.parametrize("ranks", [1, 3, 64])
def test_adversarial_steps_are_packed_within_capacity(policy, lengths, ranks):
    lengths = np.array(lengths, dtype=np.int64)
    rounds = packed(lengths, ranks, policy, COSTS[2])
    members = [bin_ for group in rounds for bin_ in group]
    assert sorted(np.concatenate(members).tolist()) == list(range(len(lengths)))
    assert max(int(lengths[bin_].sum()) for bin_ in members) <= CAPACITY
    forced = -(-int(lengths.sum()) // (CAPACITY * ranks))
    most = len(lengths) if policy is PackingPolicy.NONE else 2 * forced + 1
    assert forced <= len(rounds) <= most


@given(lengths=lengths_of_steps, ranks=ranks_of_steps)
def test_a_known_packing_is_used_where_it_is_the_best(lengths, ranks):
    known = packed(lengths, ranks, PackingPolicy.BALANCED, COSTS[2])
    again = packed(lengths, ranks, PackingPolicy.BALANCED, COSTS[2], known=known)
    one, other = (packing_figures(lengths, plan, capacity=CAPACITY, cost=COSTS[2]) for plan in (known, again))
    assert len(again) <= len(known)
    assert other.round_inflation <= one.round_inflation


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


@pytest.mark.parametrize("policy", PackingPolicy)
@pytest.mark.parametrize("length", [0, -1])
def test_a_sample_without_a_token_is_none(policy, length):
    with pytest.raises(InvalidRequestError, match=f"sample 1 has {length} tokens"):
        packed(np.array([5, length, 7]), 2, policy)


@pytest.mark.parametrize(("tensor", "context", "fp8"), [(8, 1, False), (2, 4, False), (2, 4, True), (4, 2, True)])
def test_with_the_alignment_of_its_parallelism_every_sample_is_shared_equally(tensor, context, fp8):
    """Each of 2 cp chunks of a sample has the same multiple of tp tokens; with FP8, a rank's two, of 8 each."""
    alignment = tensor if context == 1 else 2 * tensor * context
    alignment = math.lcm(alignment, 16 * context) if fp8 else alignment
    lengths = np.arange(1, 97)
    footprints = footprints_of(lengths, capacity=CAPACITY, alignment=alignment)
    chunks = footprints // (1 if context == 1 else 2 * context)
    assert (chunks % tensor == 0).all()
    assert not fp8 or (2 * chunks % 16 == 0).all()
    assert (footprints - lengths < alignment).all()
    assert (footprints >= lengths).all()


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


@given(
    lengths=st.lists(st.integers(2, 2**28), min_size=1, max_size=20).map(np.array),
    linear=st.integers(0, 2**62),
    quadratic=st.integers(1, 2**62),
)
def test_scaled_costs_keep_their_ratios_and_their_sum_fits(lengths, linear, quadratic):
    cost = CostModel(linear, quadratic)
    exact, scaled = cost.of(lengths), cost.scaled(lengths)
    assert scaled.min() >= 1
    assert sum(scaled.tolist()) <= 2**62 + len(lengths)
    ratio = exact[0] / int(scaled[0])
    if scaled.min() > 2**20:
        assert [value / int(part) for value, part in zip(exact, scaled, strict=True)] == pytest.approx(
            [ratio] * len(exact), rel=1e-5
        )


def test_balanced_beats_first_fit_by_far_where_there_is_slack():
    rng = np.random.default_rng(5)
    lengths = np.clip(np.exp(rng.normal(np.log(330), 1.0, 3100)), 2, 4096).astype(np.int64)
    figures = {
        policy: packing_figures(
            lengths, packed(lengths, 64, policy, COSTS[3], capacity=32_768), capacity=32_768, cost=COSTS[3]
        )
        for policy in (PackingPolicy.BALANCED, PackingPolicy.FIRST_FIT)
    }
    assert figures[PackingPolicy.BALANCED].round_inflation < 1.001
    assert figures[PackingPolicy.FIRST_FIT].round_inflation > 1.3


def test_a_million_samples_take_seconds_and_some_hundred_bytes_each():
    rng = np.random.default_rng(6)
    lengths = np.clip(np.exp(rng.normal(np.log(330), 1.0, 1_000_000)), 2, 4096).astype(np.int64)
    tracemalloc.start()
    begin = time.process_time()
    rounds = packed(lengths, 512, PackingPolicy.BALANCED, COSTS[3], capacity=32_768)
    spent, peak = time.process_time() - begin, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert spent < 10
    assert peak < 300 * len(lengths)
    assert len(rounds) == -(-int(lengths.sum()) // (512 * 32_768))


@pytest.mark.parametrize("policy", sorted(set(PackingPolicy) - {PackingPolicy.NONE}))
@pytest.mark.parametrize(
    ("median", "sigma", "longest"), [(330, 1.0, 4096), (5000, 0.85, 32_768), (15_000, 0.55, 32_768)]
)
def test_a_hundred_thousand_samples_are_packed_without_a_stall(policy, median, sigma, longest):
    """Some hundredths of a second, a tenth at most; a scan over bins for each sample takes minutes."""
    rng = np.random.default_rng(5)
    lengths = np.clip(np.exp(rng.normal(np.log(median), sigma, 100_000)), 2, 32_768).astype(np.int64)
    packed(lengths[:10], 64, policy, COSTS[3], capacity=32_768)
    begin = time.process_time()
    rounds = packed(lengths, 64, policy, COSTS[3], capacity=32_768)
    assert time.process_time() - begin < 1
    assert len(rounds) >= -(-int(lengths.sum()) // (64 * 32_768))
