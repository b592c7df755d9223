"""Totals are sums and means of the steps, whatever their number, and text keeps them to the last bit."""

import random
from collections import Counter
from statistics import fmean

import pytest

from dataserver.ledger.totals import SealedTotals, StepServed, add_step
from dataserver.packing.figures import PackingFigures

NAMES = ("token_efficiency", "rank_imbalance", "round_inflation")


def steps(count: int) -> list[StepServed]:
    chooser = random.Random(3)
    stores = [f"store-{number}" for number in range(5)]
    return [
        StepServed(
            figures=PackingFigures(**{name: chooser.uniform(0.5, 3) for name in NAMES}),
            store_tokens={store: chooser.randrange(2**40) for store in chooser.sample(stores, chooser.randint(1, 5))},
        )
        for _ in range(count)
    ]


def test_many_steps_add_up_through_text():
    totals, tokens = None, Counter()
    served = steps(500)
    for step in served:
        totals = add_step(totals, step)
        assert SealedTotals.from_json(totals.to_json()) == totals
        tokens.update(step.store_tokens)
    assert (totals.steps, totals.last) == (500, served[-1].figures)
    assert totals.store_tokens == tokens
    for name in NAMES:
        assert getattr(totals.mean, name) == pytest.approx(fmean(getattr(step.figures, name) for step in served), 1e-12)


def test_the_first_step_is_its_own_mean():
    (step,) = steps(1)
    assert add_step(None, step).mean == step.figures
