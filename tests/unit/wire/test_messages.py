"""Specs and cursors survive the wire; what is illegal is refused with the field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.cursor import Cursor
from dataserver.errors import InvalidRequestError, InvalidSpecError
from dataserver.run_spec import BatchSpec, LongRows, OrderSpec, PackingPolicy, RunSpec, Shuffle, Source
from dataserver.v1 import cursor_pb2, run_spec_pb2
from dataserver.weighting import Stopping, WeightUnit
from dataserver.wire.messages import (
    batch_spec_from_proto,
    cursor_from_proto,
    cursor_to_proto,
    run_spec_from_proto,
    run_spec_to_proto,
)

optional_count = st.none() | st.integers(1, 2**40)


@st.composite
def order_specs(draw):
    names = draw(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4, unique=True))
    shuffle = draw(st.sampled_from(Shuffle))
    fields = {"seed": st.integers(0, 2**63 - 1), "max_length": st.integers(2, 64)}
    fields["long_rows"] = st.sampled_from(LongRows)
    if shuffle is Shuffle.BLOCK:
        fields["block_window"] = st.integers(1, 65536)
    if shuffle is Shuffle.CUSTOM:
        fields["sampler"] = st.text(min_size=1, max_size=9)
    weights = [None] * len(names)
    if draw(st.booleans()):
        weights = draw(st.lists(st.floats(0.001, 1e6) | st.just(0.5), min_size=len(names), max_size=len(names)))
        fields["weight_unit"] = st.sampled_from(WeightUnit)
        fields["stopping"] = st.sampled_from(
            [stopping for stopping in Stopping if shuffle is Shuffle.FULL or stopping is not Stopping.WITH_REPLACEMENT]
        )
    sources = tuple(Source(store=name, weight=weight) for name, weight in zip(names, weights, strict=True))
    return OrderSpec(sources=sources, shuffle=shuffle, **{name: draw(value) for name, value in fields.items()})


batches = st.builds(
    BatchSpec,
    step_samples=st.integers(1, 2**40),
    micro_batch_tokens=st.integers(4096, 2**28),
    policy=st.sampled_from(PackingPolicy),
    alignment=st.sampled_from([1, 8]),
    lookahead_steps=st.integers(1, 64),
    max_steps=optional_count,
    max_epochs=optional_count,
    cost_linear=st.integers(1, 2**50),
    cost_quadratic=st.integers(0, 2**50),
)


@given(st.builds(RunSpec, order=order_specs(), batch=batches, vocab_size=optional_count))
def test_a_run_spec_survives_the_wire(spec):
    data = run_spec_to_proto(spec).SerializeToString()
    assert run_spec_from_proto(run_spec_pb2.RunSpec.FromString(data)) == spec


def test_all_step_budgets_and_padding_survive():
    for budget in (
        {"step_tokens": 100},
        {"step_samples": 7},
        {"step_rounds": 3},
        {"step_samples": 7, "pad_to": "capacity"},
    ):
        batch = BatchSpec(micro_batch_tokens=64, **budget)
        spec = RunSpec(order=OrderSpec(sources=(Source(store="a"),), max_length=8), batch=batch)
        assert run_spec_from_proto(run_spec_to_proto(spec)).batch == batch


def test_an_empty_batch_spec_names_each_missing_field():
    with pytest.raises(
        InvalidSpecError, match="policy: 0 is none of balanced, first_fit, cost_balanced, sequential, none"
    ):
        batch_spec_from_proto(run_spec_pb2.BatchSpec())
    with pytest.raises(InvalidSpecError, match=r"micro_batch_tokens.*alignment.*lookahead_steps"):
        batch_spec_from_proto(run_spec_pb2.BatchSpec(policy=run_spec_pb2.PACKING_POLICY_BALANCED))


def test_a_spec_without_an_order_is_refused():
    with pytest.raises(InvalidSpecError, match="no order spec"):
        run_spec_from_proto(run_spec_pb2.RunSpec())


def test_a_step_that_no_longest_sample_fits_is_refused_with_both_numbers():
    order = run_spec_pb2.OrderSpec(
        sources=[run_spec_pb2.Source(store="a")],
        max_length=100,
        shuffle=run_spec_pb2.SHUFFLE_FULL,
        long_rows=run_spec_pb2.LONG_ROWS_TRUNCATE,
    )
    batch = run_spec_pb2.BatchSpec(
        step_tokens=99,
        micro_batch_tokens=128,
        policy=run_spec_pb2.PACKING_POLICY_FIRST_FIT,
        alignment=1,
        lookahead_steps=1,
        cost_linear=1,
    )
    with pytest.raises(InvalidSpecError, match="step_tokens = 99 is below max_length = 100"):
        run_spec_from_proto(run_spec_pb2.RunSpec(order=order, batch=batch))


@pytest.mark.parametrize("field", ["step", "epoch", "position", "stage"])
def test_a_negative_number_in_a_cursor_is_refused(field):
    message = cursor_to_proto(Cursor(order_fingerprint="f"))
    setattr(message, field, -1)
    with pytest.raises(InvalidRequestError, match="negative"):
        cursor_from_proto(message)


def test_a_cursor_without_a_fingerprint_is_refused():
    with pytest.raises(InvalidRequestError, match="no order_fingerprint"):
        cursor_from_proto(cursor_pb2.Cursor(step=3))


def test_a_window_that_is_done_is_refused():
    message = cursor_pb2.Cursor(order_fingerprint="f")
    message.window.steps = message.window.steps_done = message.window.samples = 1
    with pytest.raises(InvalidRequestError, match="impossible window"):
        cursor_from_proto(message)
