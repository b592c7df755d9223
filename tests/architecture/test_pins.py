"""What `make setup` installs is pinned, all of it, and is what these tests run with."""

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
PINS = {
    canonicalize_name(name): Version(version)
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), re.M)
}


def installed_closure(extra: str) -> set[str]:
    """Every distribution that the project needs with `extra`, itself left out."""
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]
    queue = [Requirement(text) for text in wanted]
    found: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    while queue:
        requirement = queue.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        if name == PROJECT["name"]:
            queue += [Requirement(text) for chosen in extras for text in PROJECT["optional-dependencies"][chosen]]
            continue
        found.add(name)
        for text in distribution(name).requires or ():
            dependency = Requirement(text)
            markers = [{"extra": chosen} for chosen in extras or {""}]
            if dependency.marker is None or any(dependency.marker.evaluate(marker) for marker in markers):
                queue.append(dependency)
    return found


def is_pinned_elsewhere(name: str) -> bool:
    """pip brings setuptools into every environment; torch pins its own CUDA libraries, where it has any."""
    return name in {"setuptools", "triton"} or name.startswith(("nvidia-", "cuda-"))


def test_everything_that_is_installed_is_pinned() -> None:
    assert {name for name in installed_closure("dev") - PINS.keys() if not is_pinned_elsewhere(name)} == set()


def test_nothing_is_pinned_that_is_not_installed() -> None:
    assert PINS.keys() - installed_closure("dev") == set()


def test_the_pins_are_what_runs_here() -> None:
    versions = {name: Version(distribution(name).version).public for name in PINS}
    assert versions == {name: str(pin) for name, pin in PINS.items()}


def test_a_pin_is_a_public_version_so_that_any_build_of_it_satisfies() -> None:
    assert [name for name, pin in PINS.items() if pin.local] == []
