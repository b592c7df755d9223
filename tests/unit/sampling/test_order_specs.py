"""What an order spec may say: weights for all sources or none, and nothing that would be ignored."""

import pytest
from pydantic import ValidationError

from dataserver.run_spec import OrderSpec, Source


def spec(*weights, **fields):
    sources = tuple(Source(store=f"store-{number}", weight=weight) for number, weight in enumerate(weights or (None,)))
    return OrderSpec(sources=sources, max_length=8, **fields)


@pytest.mark.parametrize(
    ("weights", "fields", "fault"),
    [
        ((1, None), {}, "give each source a weight, or none"),
        ((0, 0), {}, "weights of all sources are 0"),
        ((-1, 2), {}, "greater than or equal to 0"),
        ((float("nan"), 2), {}, "finite"),
        ((float("inf"), 2), {}, "finite"),
        ((None, None), {"stopping": "first_exhausted"}, "stopping = first_exhausted .* no weight"),
        ((None, None), {"weight_unit": "tokens"}, "weight_unit = tokens .* no weight"),
        ((), {"block_window": 8}, "block_window = 8 is for shuffle = block"),
        ((), {"shuffle": "block", "block_window": 0}, "greater than or equal to 1"),
        ((), {"shuffle": "custom"}, "sampler = '' with shuffle = custom"),
        ((), {"sampler": "mine"}, "sampler = 'mine' with shuffle = full"),
        ((1, 1), {"stopping": "with_replacement", "shuffle": "block"}, "with_replacement .* shuffle = block"),
        ((1, 1), {"stopping": "with_replacement", "shuffle": "sequential"}, "nothing to order; use `full`"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_it_says(weights, fields, fault):
    with pytest.raises(ValidationError, match=fault):
        spec(*weights, **fields)


def test_one_source_may_have_a_weight():
    assert spec(0.5).weighted
    assert not spec().weighted
    assert spec(0, 1).weighted
