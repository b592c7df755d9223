"""Puts the crash laboratory on the path and lends its zygotes to the tests."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from crashlab.pool import Pool


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Pool"]:
    from crashlab.pool import Pool

    with Pool(tmp_path_factory.mktemp("crashes")) as pool:
        yield pool
