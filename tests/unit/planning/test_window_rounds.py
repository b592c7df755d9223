"""The steps of a window keep the rounds that they were dealt while they are packed by what they were dealt for."""

import numpy as np
import pytest

from dataserver.packing.cost import CostModel
from dataserver.packing.pack import pack
from dataserver.run_spec import BatchSpec, Shuffle

RANKS, CAPACITY = 8, 131_072

# As of GLM-4.5-Air: a token of a sample of 20,000 costs twice that of a short one.
COST = {"cost_linear": 22_447_915_008, "cost_quadratic": 1_130_496}


@pytest.fixture(scope="module")
def lengths():
    drawn = np.exp(np.random.default_rng(7).normal(np.log(15_000), 0.55, 1200))
    return np.clip(drawn, 2, 32_768).astype(int).tolist()


def batch(**more):
    return BatchSpec(
        step_tokens=int(RANKS * CAPACITY * 0.985), micro_batch_tokens=CAPACITY, lookahead_steps=16, **COST, **more
    )


def test_full_steps_of_one_round_stay_at_one_round_and_are_even(drive, listed_table, lengths):
    run = drive(listed_table([lengths]), shuffle=Shuffle.SEQUENTIAL)
    plans = [run.step(batch(), RANKS) for _ in range(16)]
    assert [len(plan.rounds) for plan in plans] == [1] * 16
    assert max(plan.figures.round_inflation for plan in plans) < 1.03
    tokens = np.array([plan.token_count for plan in plans])
    assert np.abs(tokens / tokens.mean() - 1).max() <= 0.05
    assert set(run.consumed.values()) == {1}


@pytest.mark.parametrize(("ranks", "more"), [(4, {}), (RANKS, {"alignment": 64})])
def test_other_ranks_and_another_batch_spec_pack_the_same_samples_anew(drive, listed_table, lengths, ranks, more):
    steady, changed = (drive(listed_table([lengths]), shuffle=Shuffle.SEQUENTIAL) for _ in range(2))
    for run in (steady, changed):
        run.step(batch(), RANKS)
    one, other = steady.step(batch(), RANKS), changed.step(batch(**more), ranks)
    assert np.array_equal(one.samples.row, other.samples.row)
    rounds = pack(
        other.lengths,
        dp_world_size=ranks,
        capacity=CAPACITY,
        alignment=more.get("alignment", 1),
        policy=batch().policy,
        cost=CostModel(COST["cost_linear"], COST["cost_quadratic"]),
    )
    assert [[bin_.tolist() for bin_ in group] for group in other.rounds] == [
        [bin_.tolist() for bin_ in group] for group in rounds
    ]
