"""Every sample of an epoch is consumed once over any sequence of steps, world sizes, windows and batch specs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataserver.cursor import Cursor
from dataserver.planning.plan import EndOfRun
from dataserver.run_spec import BatchSpec, PackingPolicy, Shuffle

LONGEST = 60

lengths_of_sources = st.lists(st.lists(st.integers(2, LONGEST), max_size=30), min_size=1, max_size=4).filter(any)


@st.composite
def batch_specs(draw, max_epochs):
    budget = draw(
        st.one_of(
            st.builds(dict, step_tokens=st.integers(LONGEST, 400), lookahead_steps=st.integers(1, 6)),
            st.builds(dict, step_samples=st.integers(1, 17), lookahead_steps=st.integers(1, 6)),
            st.builds(dict, step_rounds=st.integers(1, 3)),
        )
    )
    return BatchSpec(
        micro_batch_tokens=draw(st.integers(64, 256)),
        policy=draw(st.sampled_from(PackingPolicy)),
        alignment=draw(st.sampled_from([1, 2, 3, 16])),
        max_epochs=max_epochs,
        cost_linear=draw(st.sampled_from([0, 1, 100])),
        cost_quadratic=1,
        **budget,
    )


@settings(max_examples=150)
@given(
    lengths=lengths_of_sources,
    shuffle=st.sampled_from([Shuffle.SEQUENTIAL, Shuffle.FULL]),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 2**63 - 1),
    data=st.data(),
)
def test_any_steps_consume_each_sample_once_an_epoch(drive, listed_table, lengths, shuffle, epochs, seed, data):
    table = listed_table(lengths)
    run = drive(table, seed=seed, shuffle=shuffle)
    batch = data.draw(batch_specs(max_epochs=epochs))
    while run.ended is None:
        if data.draw(st.booleans()):
            batch = data.draw(batch_specs(max_epochs=epochs))
        plan = run.step(batch, data.draw(st.sampled_from([1, 2, 3, 5, 8])))
        if run.ended is None:
            check_packed(plan, batch)
    assert run.ended.reason == "max_epochs"
    assert [plan.last for plan in run.plans] == [False] * (len(run.plans) - 1) + [True]
    assert run.consumed == {(source, row): epochs for source, size in enumerate(table.sizes) for row in range(size)}


def check_packed(plan, batch):
    assert len(plan.samples) == len(plan.lengths) > 0
    assert plan.token_count == int(plan.lengths.sum())
    assert {len(group) for group in plan.rounds} == {plan.dp_world_size}
    members = [bin_ for group in plan.rounds for bin_ in group]
    assert sorted(np.concatenate(members).tolist()) == list(range(len(plan.samples)))
    for bin_ in members:
        footprints = -(-plan.lengths[bin_] // batch.alignment) * batch.alignment
        assert footprints.sum() <= batch.micro_batch_tokens


@settings(max_examples=60)
@given(
    lengths=lengths_of_sources,
    lookahead=st.integers(1, 6),
    crashes=st.lists(st.tuples(st.integers(0, 12), st.sampled_from([1, 2, 3, 4])), max_size=6),
)
def test_going_back_to_any_checkpoint_repeats_and_loses_nothing(drive, listed_table, lengths, lookahead, crashes):
    """What survives is what the last life consumed after the checkpoint that it began from."""
    run = drive(listed_table(lengths))
    batch = BatchSpec(step_tokens=100, micro_batch_tokens=64, lookahead_steps=lookahead, max_epochs=2)
    for back, ranks in crashes:
        for _ in range(5):
            run.step(batch, ranks)
        survivors = max(0, len(run.plans) - back)
        run.plans = run.plans[:survivors]
        run.cursor = run.plans[-1].end if run.plans else run.make_planner().initial_cursor()
    run.to_the_end(batch, 3)
    assert set(run.consumed.values()) == {2}
    assert sum(run.consumed.values()) == 2 * sum(map(len, lengths))


def test_lengths_2_3_4_with_a_window_of_2_begun_at_1_rank_and_ended_at_2(drive, listed_table):
    """Dealt anew for each world size, sample 0 would come twice and sample 1 never."""
    run = drive(listed_table([[2, 3, 4]]), shuffle=Shuffle.SEQUENTIAL)
    batch = BatchSpec(step_tokens=5, micro_batch_tokens=5, lookahead_steps=2, max_epochs=1)
    first = run.step(batch, 1)
    assert first.end.window is not None
    assert (first.end.epoch, first.end.position) == (0, 0)
    second = run.step(batch, 2)
    assert second.end.window is None
    assert second.last
    assert isinstance(run.step(batch, 2), EndOfRun)
    assert run.consumed == {(0, 0): 1, (0, 1): 1, (0, 2): 1}


@pytest.mark.parametrize("lookahead", [2, 3, 5, 8])
def test_a_window_holds_the_samples_of_as_many_cuts(drive, hashed_table, lookahead):
    plain, ahead = drive(hashed_table(500)), drive(hashed_table(500))
    spec = {"step_tokens": 4000, "micro_batch_tokens": 1024, "max_epochs": 2}
    plain.to_the_end(BatchSpec(**spec), 2)
    ahead.to_the_end(BatchSpec(**spec, lookahead_steps=lookahead), 2)
    assert len(plain.plans) == len(ahead.plans)
    for start in range(0, len(plain.plans), lookahead):
        windows = [
            sorted(
                (source, row)
                for plan in run.plans[start : start + lookahead]
                for source, row in zip(plan.samples.source.tolist(), plan.samples.row.tolist(), strict=True)
            )
            for run in (plain, ahead)
        ]
        assert windows[0] == windows[1]
        end = min(start + lookahead, len(plain.plans)) - 1
        assert plain.plans[end].end == ahead.plans[end].end


@pytest.mark.parametrize("ranks", [[1, 2, 3, 8], [8, 1, 1, 2]])
def test_a_resume_at_other_ranks_keeps_the_steps_of_a_window(drive, hashed_table, ranks):
    batch = BatchSpec(step_tokens=6000, micro_batch_tokens=1024, lookahead_steps=4)
    steady, changing = drive(hashed_table(300)), drive(hashed_table(300))
    for number in ranks:
        steady.step(batch, ranks[0])
        changing.step(batch, number)
    for one, other in zip(steady.plans, changing.plans, strict=True):
        assert np.array_equal(one.samples.row, other.samples.row)
        assert one.end == other.end
    assert [plan.dp_world_size for plan in changing.plans] == ranks


def test_a_batch_spec_that_changes_inside_a_window_cuts_from_its_end_and_packs_at_once(drive, hashed_table):
    before = BatchSpec(step_tokens=6000, micro_batch_tokens=1024, lookahead_steps=3)
    after = BatchSpec(step_samples=5, micro_batch_tokens=2048, alignment=64, lookahead_steps=1)
    steady, changing = drive(hashed_table(300)), drive(hashed_table(300))
    for number in range(3):
        steady.step(before, 2)
        changing.step(before if number == 0 else after, 2)
    assert [plan.end for plan in steady.plans] == [plan.end for plan in changing.plans]
    assert all(np.array_equal(a.samples.row, b.samples.row) for a, b in zip(steady.plans, changing.plans, strict=True))
    check_packed(changing.plans[2], after)
    assert len(changing.plans[2].rounds) < len(steady.plans[2].rounds)
    assert len(changing.step(after, 2).samples) == 5


def test_a_step_may_span_epochs_and_the_next_epoch_is_whole(drive, listed_table):
    run = drive(listed_table([[10] * 5]))
    batch = BatchSpec(step_samples=3, micro_batch_tokens=64, max_epochs=3)
    plans = run.to_the_end(batch)
    assert [(plan.end.epoch, plan.end.position) for plan in plans] == [(0, 3), (1, 1), (1, 4), (2, 2), (3, 0)]
    assert set(run.consumed.values()) == {3}


def test_a_step_larger_than_an_epoch_takes_several(drive, listed_table):
    run = drive(listed_table([[10, 10], [], [10]]))
    plan = run.step(BatchSpec(step_tokens=100, micro_batch_tokens=64), 1)
    assert len(plan.samples) == 10
    assert (plan.end.epoch, plan.end.position) == (3, 1)
    assert sorted(run.consumed.values()) == [3, 3, 4]


def test_the_same_cursor_gives_the_same_plan_from_a_warm_and_from_a_fresh_planner(drive, hashed_table):
    batch = BatchSpec(step_tokens=6000, micro_batch_tokens=1024, lookahead_steps=4)
    run = drive(hashed_table(300))
    for _ in range(6):
        run.step(batch, 2)
    warm = run.make_planner()
    for plan in [*run.plans[::-1], *run.plans]:
        again = warm.plan(plan.begin, batch, 2)
        assert (again.digest, again.end) == (plan.digest, plan.end)


@given(step=st.integers(0, 2**40), position=st.integers(0, 2**40), done=st.integers(1, 3))
def test_a_cursor_survives_json(drive, hashed_table, step, position, done):
    run = drive(hashed_table(300))
    dealt = run.step(BatchSpec(step_tokens=6000, micro_batch_tokens=1024, lookahead_steps=4), 2).end
    cursor = replace(dealt, step=step, position=position, window=replace(dealt.window, steps_done=done))
    assert Cursor.from_json(cursor.to_json()) == cursor
    assert Cursor.from_json(cursor.to_json()).to_json() == cursor.to_json()
