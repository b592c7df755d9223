"""Orders and plans stay what they are, to the bit, until their version is raised."""

import copy
import json
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("regenerate.py")
GOLDEN = runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def recorded():
    return json.loads(SCRIPT.with_name("plans.json").read_text())


@pytest.fixture(scope="module")
def computed():
    return GOLDEN["compute"]()


def test_no_digest_changes_without_its_version(recorded, computed):
    assert GOLDEN["faults"](recorded, computed) == []


def test_the_file_is_that_of_this_code(recorded, computed):
    assert recorded == computed, "run `python tests/golden/regenerate.py` and commit plans.json"


def test_computing_again_gives_the_same(computed):
    assert GOLDEN["compute"]() == computed


@pytest.mark.parametrize(("part", "version"), [("order", "ORDER"), ("fingerprint", "ORDER"), ("plans", "PLANNER")])
def test_a_change_without_its_version_is_a_fault_that_says_what_to_raise(computed, part, version):
    changed = copy.deepcopy(computed)
    changed["cases"]["first fit"][part] = ["another"]
    (fault,) = GOLDEN["faults"](computed, changed)
    assert fault.startswith("first fit: ")
    assert f"raise {version}_VERSION" in fault


@pytest.mark.parametrize(("part", "raised"), [("order", "order"), ("plans", "planner"), ("plans", "order")])
def test_a_change_with_its_version_is_none(computed, part, raised):
    changed = copy.deepcopy(computed)
    changed[f"{raised}_version"] += 1
    changed["cases"]["first fit"][part] = ["another"]
    assert GOLDEN["faults"](computed, changed) == []


def test_the_planner_version_does_not_cover_the_order(computed):
    changed = copy.deepcopy(computed)
    changed["planner_version"] += 1
    changed["cases"]["first fit"]["order"] = ["another"]
    assert len(GOLDEN["faults"](computed, changed)) == 1


def test_the_script_leaves_the_file_when_a_version_has_to_be_raised(tmp_path, computed):
    changed = copy.deepcopy(computed)
    changed["cases"]["first fit"]["plans"] = ["as it was before"]
    before = json.dumps(changed)
    (tmp_path / "plans.json").write_text(before)
    script = tmp_path / "regenerate.py"
    script.write_text(SCRIPT.read_text())
    assert runpy.run_path(str(script))["main"]() == 1
    assert (tmp_path / "plans.json").read_text() == before
