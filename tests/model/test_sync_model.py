"""The rules on syncs: with all of them nothing goes wrong, without any one of them something does.

Run with `-s` to read how.
"""

import re

import pytest
from ledgermodel.explorer import search
from ledgermodel.variants import Variant
from syncmodel import scenarios
from syncmodel.actions import events
from syncmodel.play import SyncPlay
from syncmodel.scenarios import Scenario
from syncmodel.variants import VARIANTS

SCENARIOS = {name: value for name, value in vars(scenarios).items() if isinstance(value, Scenario)}


def marked(variant: Variant):
    """A variant whose counterexample lies deep takes long."""
    marks = [pytest.mark.slow] if variant.scenario in scenarios.DEEP.values() else []
    return pytest.param(variant, marks=marks, id=f"rule {variant.rule}: {variant.name}")


def explore(scenario: Scenario):
    with SyncPlay(scenario) as play:
        return search(play, events, most_states=60_000)


@pytest.mark.parametrize("name", SCENARIOS)
def test_with_all_rules_on_syncs_nothing_goes_wrong(name):
    found = explore(SCENARIOS[name])
    print(f"{name}: {found}")
    assert found.fault == "", str(found)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("scenario", scenarios.DEEP.values(), ids=scenarios.DEEP)
def test_with_all_rules_on_syncs_nothing_goes_wrong_whatever_comes_together(scenario):
    found = explore(scenario)
    print(found)
    assert found.fault == "", str(found)


@pytest.mark.parametrize("variant", [marked(variant) for variant in VARIANTS])
def test_without_a_rule_on_syncs_its_counterexample_is_found(variant, monkeypatch):
    variant.change(monkeypatch)
    found = explore(variant.scenario)
    print(f"without rule {variant.rule}, {variant.name}: {found}")
    assert re.search(variant.fault, found.fault), str(found)
