"""The protocol's rules: with all of them nothing goes wrong, without any one of them something does.

Run with `-s` to read how.
"""

import re

import pytest
from ledgermodel import scenarios
from ledgermodel.explorer import explore
from ledgermodel.scenarios import DEEP, Scenario
from ledgermodel.variants import MEET, VARIANTS

SCENARIOS = {name: value for name, value in vars(scenarios).items() if isinstance(value, Scenario)}


WHOLE = [
    pytest.param(name, marks=pytest.mark.slow if name in ("BRANCHES", "RESTORED") else ())
    for name in SCENARIOS
    if name not in ("FORGETFUL", "LATE")
]


@pytest.mark.parametrize("name", WHOLE)
def test_with_all_rules_nothing_goes_wrong(name):
    found = explore(SCENARIOS[name])
    assert found.fault == "", str(found)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("scenario", DEEP.values(), ids=DEEP)
def test_with_all_rules_nothing_goes_wrong_whatever_comes_together(scenario):
    found = explore(scenario, most_states=200_000)
    print(found)
    assert found.fault == "", str(found)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"rule {variant.rule}: {variant.name}")
def test_without_a_rule_its_counterexample_is_found(variant, monkeypatch):
    variant.change(monkeypatch)
    found = explore(variant.scenario)
    print(f"without rule {variant.rule}, {variant.name}: {found}")
    assert re.search(variant.fault, found.fault), str(found)


def test_a_seal_that_is_not_durable_when_its_first_byte_leaves_is_sealed_again_otherwise():
    found = explore(scenarios.FORGETFUL)
    print("without rule 6, seals are durable:", found)
    assert re.search(rf"{MEET} with \(1, .*False.* and \(1, .*True", found.fault), str(found)


def test_what_the_ledger_cannot_see_the_ranks_find_by_comparing():
    """Rule 8: a rank that skips a step which others got is in accord with the ledger, and with nobody else."""
    found = explore(scenarios.LATE)
    print("what rule 8 finds:", found)
    assert re.search(rf"{MEET} with \(1, .* and \(2, ", found.fault), str(found)
