"""Orders that mix rows of text with rows of images: one modality a round, every sample once, any ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataserver.run_spec import BatchSpec

CAPACITY = 64
mixes = st.lists(st.tuples(st.integers(2, CAPACITY), st.booleans()), min_size=1, max_size=80)
budgets = st.sampled_from(
    [{"step_tokens": 200}, {"step_samples": 7}, {"step_rounds": 2}, {"step_rounds": 3},
     {"step_tokens": 128, "lookahead_steps": 4}]
)  # fmt: skip


@pytest.fixture(scope="module")
def mixed_table(listed_table):
    class MixedTable(listed_table):
        """Rows of one source, with a flag for each."""

        def __init__(self, mix):
            super().__init__([[length for length, _ in mix]])
            self.images = np.array([image for _, image in mix])

        def has_images(self, samples):
            return self.images[samples.row]

    return MixedTable


@settings(max_examples=60)
@given(mix=mixes, budget=budgets, ranks=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_every_round_has_one_modality_and_every_sample_is_consumed_once(drive, mixed_table, mix, budget, ranks):
    table = mixed_table(mix)
    run = drive(table)
    batch = BatchSpec(micro_batch_tokens=CAPACITY, max_epochs=1, **budget)
    for number in range(10 * len(mix)):
        if run.ended is not None:
            break
        run.step(batch, ranks[number % len(ranks)])
    assert run.ended is not None
    for plan in run.plans:
        if "step_rounds" in budget:
            assert len(plan.rounds) == budget["step_rounds"]
        flags = table.has_images(plan.samples)
        for number, group in enumerate(plan.rounds):
            assert (flags[np.concatenate(group)] == plan.is_image_round(number)).all()
        assert plan.token_count == plan.lengths.sum()
    assert set(run.consumed.values()) == {1}
    assert len(run.consumed) == len(mix)


@given(lengths=st.lists(st.integers(2, CAPACITY), min_size=1, max_size=80), budget=budgets, ranks=st.integers(1, 5))
def test_plans_of_text_are_the_same_whether_or_not_a_store_may_have_images(
    drive, listed_table, mixed_table, lengths, budget, ranks
):
    batch = BatchSpec(micro_batch_tokens=CAPACITY, max_epochs=1, **budget)
    plain = drive(listed_table([lengths])).to_the_end(batch, ranks)
    flagged = drive(mixed_table([(length, False) for length in lengths])).to_the_end(batch, ranks)
    assert [plan.digest for plan in plain] == [plan.digest for plan in flagged]
    assert {plan.image_rounds for plan in plain + flagged} == {0}


def test_the_denominator_is_the_same_for_any_ranks_and_rounded_once(drive, listed_table):
    random = np.random.default_rng(3)
    per_row = np.exp(random.normal(0, 20, 500))

    class Weighted(listed_table):
        def weights(self, samples):
            return per_row[samples.row]

    table = Weighted([random.integers(2, 60, 500).tolist()])
    batch = BatchSpec(step_samples=300, micro_batch_tokens=CAPACITY)
    plans = [drive(table).step(batch, ranks) for ranks in (1, 2, 7)]
    assert len({plan.weight_sum for plan in plans}) == 1
    assert plans[0].weight_sum == pytest.approx(float(np.sum(per_row[plans[0].samples.row].astype(np.longdouble))))
    assert plans[0].target_count != plans[0].weight_sum


def test_without_weights_the_denominator_counts_targets(drive, listed_table):
    [plan] = drive(listed_table([[10, 20, 30]])).to_the_end(
        BatchSpec(step_samples=3, micro_batch_tokens=64, max_epochs=1)
    )
    assert plan.weight_sum == plan.target_count == 30
