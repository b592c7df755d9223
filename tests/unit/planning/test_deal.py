"""The deal of a window: no step is empty, each has its share, and long samples meet."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataserver.cursor import Deal
from dataserver.packing.figures import packing_figures
from dataserver.packing.pack import CostModel, pack
from dataserver.planning.deal import deal_window
from dataserver.planning.fingerprint import PLANNER_VERSION
from dataserver.run_spec import PackingPolicy

DEAL = Deal(
    dp_world_size=4,
    micro_batch_tokens=128,
    alignment=1,
    cost_linear=10,
    cost_quadratic=1,
    policy="balanced",
    planner_version=PLANNER_VERSION,
)


@st.composite
def windows(draw):
    steps = draw(st.integers(2, 8))
    lengths = draw(st.lists(st.integers(2, 64), min_size=steps, max_size=200))
    deal = replace(
        DEAL,
        dp_world_size=draw(st.integers(1, 8)),
        alignment=draw(st.sampled_from([1, 2, 16, 64])),
        policy=draw(st.sampled_from([*PackingPolicy])).value,
        cost_quadratic=draw(st.integers(0, 5)),
    )
    return np.array(lengths, dtype=np.int64), steps, deal


@settings(max_examples=300)
@given(window=windows())
def test_every_step_has_samples_and_its_share_of_tokens(window):
    lengths, steps, deal = window
    dealt = deal_window(lengths, steps, deal).steps
    assert (dealt.dtype, dealt.shape) == (np.int64, lengths.shape)
    assert set(dealt.tolist()) == set(range(steps))
    tokens = np.bincount(dealt, weights=lengths, minlength=steps)
    share = lengths.sum() / steps
    assert np.abs(tokens - share).max() <= max(lengths.max(), share / 20) + 1e-6


@given(window=windows())
def test_a_deal_is_a_pure_function_of_its_inputs(window):
    lengths, steps, deal = window
    assert np.array_equal(
        deal_window(lengths, steps, deal).steps, deal_window(lengths.copy(), steps, replace(deal)).steps
    )


@pytest.mark.parametrize("rounds", [1, 4])
@pytest.mark.parametrize(
    ("name", "ranks", "capacity", "inflation"), [("agent", 8, 131_072, 1.03), ("mix", 16, 32_768, 1.03)]
)
def test_windows_of_sixteen_steps_reach_what_is_promised(name, ranks, capacity, inflation, rounds):
    """Each step within a twentieth of its share, none of more rounds than its tokens force."""
    rng = np.random.default_rng(7)
    draw = {
        "agent": lambda: np.exp(rng.normal(np.log(15_000), 0.55, 6000)),
        "mix": lambda: rng.permutation(
            np.concatenate(
                [np.exp(rng.normal(np.log(median), sigma, 30_000)) for median, sigma in ((330, 1), (5000, 0.85))]
            )
        ),
    }[name]
    lengths = np.clip(draw(), 2, 32_768).astype(np.int64)
    budget = int(rounds * ranks * capacity * 0.985)
    lengths = lengths[: np.searchsorted(np.cumsum(lengths), 16 * budget)]
    deal = replace(
        DEAL, dp_world_size=ranks, micro_batch_tokens=capacity, cost_linear=22_000_000_000, cost_quadratic=1_130_496
    )
    dealt = deal_window(lengths, 16, deal)
    tokens = np.bincount(dealt.steps, weights=lengths)
    assert np.abs(tokens / tokens.mean() - 1).max() <= 0.05
    cost = CostModel(deal.cost_linear, deal.cost_quadratic)
    figures = [packing_figures(lengths, group, capacity=capacity, cost=cost) for group in dealt.rounds]
    assert [len(group) for group in dealt.rounds] == [rounds] * 16
    assert np.mean([each.round_inflation for each in figures]) <= inflation


def test_every_step_gets_as_many_rounds():
    """By tokens alone the step with 115 would get one round and the other three."""
    lengths = np.array([94, 115, 15, 2, 2])
    deal = replace(DEAL, dp_world_size=1, alignment=64, policy="first_fit")
    dealt = deal_window(lengths, 2, deal).steps
    counts = [
        len(
            pack(
                lengths[dealt == step],
                dp_world_size=1,
                capacity=128,
                alignment=64,
                policy=PackingPolicy.FIRST_FIT,
                cost=CostModel(10, 1),
            )
        )
        for step in range(2)
    ]
    assert counts == [2, 2]


def test_as_many_samples_as_steps_give_one_to_each():
    assert sorted(deal_window(np.array([60, 2, 2, 2]), 4, DEAL).steps.tolist()) == [0, 1, 2, 3]


def test_a_huge_number_of_ranks_makes_no_huge_number_of_bins():
    deal = replace(DEAL, dp_world_size=65_536)
    assert set(deal_window(np.full(2000, 9), 1000, deal).steps.tolist()) == set(range(1000))


@pytest.mark.parametrize("steps", [4, 8])
def test_a_window_hides_long_samples_behind_one_another(steps):
    rng = np.random.default_rng(3)
    lengths = np.clip(np.exp(rng.normal(np.log(300), 1.1, 12_000)), 2, 8192).astype(np.int64)
    cost = CostModel(1000, 1)
    deal = replace(DEAL, dp_world_size=16, micro_batch_tokens=8192, cost_linear=1000)

    def inflation(steps_of_samples):
        found = []
        for step in range(steps):
            own = lengths[steps_of_samples == step]
            rounds = pack(own, dp_world_size=16, capacity=8192, alignment=1, policy=PackingPolicy.BALANCED, cost=cost)
            found.append(packing_figures(own, rounds, capacity=8192, cost=cost).round_inflation)
        return float(np.mean(found))

    in_stream_order = np.searchsorted(np.cumsum(lengths), np.arange(1, steps) * lengths.sum() / steps)
    plain = inflation(np.searchsorted(in_stream_order, np.arange(len(lengths)), side="right"))
    dealt = inflation(deal_window(lengths, steps, deal).steps)
    assert dealt - 1 < 0.6 * (plain - 1)
