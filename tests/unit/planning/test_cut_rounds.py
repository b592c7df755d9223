"""Steps of so many rounds: whole samples, in stream order, that pack into exactly these."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dataserver.errors import InvalidSpecError
from dataserver.packing.pack import CostModel, pack
from dataserver.planning.plan import EndOfRun
from dataserver.run_spec import BatchSpec, PackingPolicy, Shuffle
from dataserver.sampling.order import Place
from dataserver.sampling.union import plain_union

CAPACITY = 64


def spec(rounds, policy=PackingPolicy.BALANCED, **more):
    return BatchSpec(
        **{"step_rounds": rounds, "micro_batch_tokens": CAPACITY, "policy": policy, "max_epochs": 1} | more
    )


@settings(max_examples=80)
@given(
    lengths=st.lists(st.integers(2, CAPACITY), min_size=1, max_size=150),
    rounds=st.integers(1, 4),
    ranks=st.integers(1, 5),
    policy=st.sampled_from(PackingPolicy),
    alignment=st.sampled_from([1, 8]),
)
def test_all_steps_have_the_same_number_of_rounds_and_consume_each_sample_once(
    drive, listed_table, lengths, rounds, ranks, policy, alignment
):
    run = drive(listed_table([lengths]), shuffle=Shuffle.SEQUENTIAL)
    plans = run.to_the_end(spec(rounds, policy, alignment=alignment), ranks)
    assert {len(plan.rounds) for plan in plans} == {rounds}
    assert np.concatenate([plan.samples.row for plan in plans]).tolist() == list(range(len(lengths)))


@pytest.mark.parametrize("policy", [PackingPolicy.FIRST_FIT, PackingPolicy.SEQUENTIAL, PackingPolicy.NONE])
def test_one_sample_more_would_take_another_round(drive, hashed_table, policy):
    table = hashed_table(5000)
    run, order = drive(table), plain_union((5000,), 0, Shuffle.FULL)
    batch = spec(2, policy, micro_batch_tokens=4096)
    for _ in range(4):
        plan = run.step(batch, 4)
        following = table.lengths(order.samples(Place(position=plan.end.position), 1))
        more = pack(
            np.concatenate([plan.lengths, following]),
            dp_world_size=4,
            capacity=4096,
            alignment=1,
            policy=policy,
            cost=CostModel(1, 0),
        )
        assert len(more) == 3


def test_bins_are_full_where_rounds_are_the_budget(drive, hashed_table):
    run = drive(hashed_table(50_000))
    batch = spec(4, micro_batch_tokens=8192, cost_linear=1000, cost_quadratic=1)
    figures = [run.step(batch, 8).figures for _ in range(5)]
    assert min(each.token_efficiency for each in figures) > 0.99
    assert max(each.round_inflation for each in figures) < 1.01


def test_the_world_size_may_change_between_steps(drive, listed_table):
    run = drive(listed_table([[9, 20, 33, 64, 5] * 30]))
    for ranks in (4, 1, 7, 2):
        assert len(run.step(spec(2), ranks).rounds) == 2
    while not isinstance(run.step(spec(1), 3), EndOfRun):
        pass
    assert set(run.consumed.values()) == {1}


def test_a_sample_that_fits_no_micro_batch_is_refused(drive, listed_table):
    with pytest.raises(InvalidSpecError, match="more than the 64 of a micro-batch"):
        drive(listed_table([[65]])).step(spec(1), 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"step_tokens": 100}, "exactly one of step_tokens, step_samples and step_rounds"),
        ({"lookahead_steps": 2}, "lookahead_steps = 2 with step_rounds"),
        ({"pad_to": 48}, "pad_to = 48 has to divide"),
        ({"pad_to": 32, "alignment": 64}, "multiple of alignment = 64"),
        ({"pad_to": "page"}, "pad_to"),
    ],
)
def test_batch_specs_that_contradict_themselves_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        spec(1, **fields)


def test_padding_may_be_said_in_words():
    assert [spec(1, pad_to=word).pad_to for word in ("none", "capacity", 16)] == [0, CAPACITY, 16]
