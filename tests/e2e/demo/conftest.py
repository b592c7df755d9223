"""Makes the demo's modules importable, as they are for a program that starts in their folder."""

from pathlib import Path

import pytest

DEMO = Path(__file__).parents[3] / "docs" / "examples" / "demo"


@pytest.fixture(autouse=True)
def _demo_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DEMO)
