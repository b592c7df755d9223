"""How well steps of assumed lengths are packed, as the planner plans them: the figures that packing aims at.

Costs of Qwen3-0.6B, and for agent traces of GLM-4.5-Air. What a figure is depends on nothing but the code.
"""

import numpy as np
import pytest

from dataserver.packing.cost import CostModel
from dataserver.packing.figures import packing_bounds
from dataserver.run_spec import BatchSpec, Shuffle

DENSE = {"cost_linear": 1_133_248_512, "cost_quadratic": 114_688}
EXPERTS = {"cost_linear": 22_447_915_008, "cost_quadratic": 1_130_496}


def lognormal(rng, count, median, sigma, longest):
    return np.clip(np.exp(rng.normal(np.log(median), sigma, count)), 2, longest).astype(int)


def chat(tokens):
    return lognormal(np.random.default_rng(7), tokens // 400, 330, 1.0, 4096).tolist()


def agent_traces(tokens):
    return lognormal(np.random.default_rng(7), tokens // 14_000, 15_000, 0.55, 32_768).tolist()


def long_mix(tokens, longest):
    """60 % chat, 39 % reasoning, 1 % of full length."""
    rng, count = np.random.default_rng(7), tokens // 2000
    parts = (
        lognormal(rng, 60 * count // 100, 330, 1.0, 4096),
        lognormal(rng, 39 * count // 100, 5000, 0.85, longest),
        np.full(count // 100, longest),
    )
    return rng.permutation(np.concatenate(parts)).tolist()


def window(drive, listed_table, lengths, ranks, **batch):
    """The plans of 16 steps, each of whose samples is consumed once."""
    run = drive(listed_table([lengths]), shuffle=Shuffle.SEQUENTIAL)
    planner = run.make_planner()
    run.make_planner = lambda: planner  # which remembers the window
    plans = [run.step(BatchSpec(**batch), ranks) for _ in range(batch.get("lookahead_steps", 4))]
    assert set(run.consumed.values()) == {1}
    return plans


def mean(plans, figure):
    return float(np.mean([getattr(plan.figures, figure) for plan in plans]))


def test_chat_lengths_fill_micro_batches_to_two_thousandths(drive, listed_table):
    room = 4 * 64 * 32_768
    plans = window(
        drive, listed_table, chat(5 * room), 64, step_tokens=int(room * 0.9995), micro_batch_tokens=32_768, **DENSE
    )
    assert [len(plan.rounds) for plan in plans] == [4] * 4
    assert mean(plans, "token_efficiency") >= 0.998
    assert mean(plans, "round_inflation") <= 1.001


def test_a_long_mix_fills_them_to_two_hundredths_and_is_near_its_floor(drive, listed_table):
    room = 4 * 64 * 32_768
    lengths = long_mix(5 * room, 32_768)
    plans = window(drive, listed_table, lengths, 64, step_tokens=int(room * 0.985), micro_batch_tokens=32_768, **DENSE)
    assert [len(plan.rounds) for plan in plans] == [4] * 4
    assert mean(plans, "token_efficiency") >= 0.98
    cost = CostModel(DENSE["cost_linear"], DENSE["cost_quadratic"])
    floors = [packing_bounds(plan.lengths, plan.rounds, capacity=32_768, cost=cost).round_inflation for plan in plans]
    assert mean(plans, "round_inflation") <= np.mean(floors) * 1.01


@pytest.mark.parametrize(
    ("draw", "ranks", "capacity", "cost", "inflation"),
    [
        (lambda tokens: long_mix(tokens, 32_768), 64, 32_768, DENSE, 1.01),
        (agent_traces, 8, 131_072, EXPERTS, 1.03),
    ],
    ids=["long mix, 64 x 32k", "agent traces, 8 x 131k"],
)
def test_in_windows_of_sixteen_steps_hardly_a_rank_waits(drive, listed_table, draw, ranks, capacity, cost, inflation):
    room = 4 * ranks * capacity
    plans = window(
        drive, listed_table, draw(18 * room), ranks,
        step_tokens=int(room * 0.985), micro_batch_tokens=capacity, lookahead_steps=16, **cost,
    )  # fmt: skip
    assert mean(plans, "round_inflation") <= inflation
    assert mean(plans, "token_efficiency") >= 0.98
    tokens = np.array([plan.token_count for plan in plans])
    assert np.abs(tokens / tokens.mean() - 1).max() <= 0.05
