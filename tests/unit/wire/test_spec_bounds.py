"""Every number that a spec accepts fits its field of the contract."""

import pytest
from pydantic import ValidationError

from dataserver.run_spec import MAX_COUNT, BatchSpec, OrderSpec, RunSpec, Source
from dataserver.wire.messages import run_spec_from_proto, run_spec_to_proto

ORDER = OrderSpec(sources=(Source(store="a"),), max_length=8)
COUNTS = ("step_tokens", "step_samples", "max_steps", "max_epochs", "cost_linear", "cost_quadratic")


def batch(name: str, value: int) -> BatchSpec:
    budget = {} if name.startswith("step_") else {"step_tokens": 64}
    return BatchSpec.model_validate({"micro_batch_tokens": 8, **budget, name: value})


@pytest.mark.parametrize("name", COUNTS)
def test_the_largest_count_travels_and_a_larger_one_is_named(name: str) -> None:
    spec = RunSpec(order=ORDER, batch=batch(name, MAX_COUNT), vocab_size=MAX_COUNT)
    assert run_spec_from_proto(run_spec_to_proto(spec)) == spec
    for beyond in (MAX_COUNT + 1, 2**63, 10**30):
        with pytest.raises(ValidationError, match=name):
            batch(name, beyond)


def test_a_vocabulary_beyond_all_counts_is_named() -> None:
    with pytest.raises(ValidationError, match="vocab_size"):
        RunSpec(order=ORDER, batch=batch("max_steps", 1), vocab_size=2**63)
