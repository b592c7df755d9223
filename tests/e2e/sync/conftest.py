"""Puts both laboratories on the path and lends zygotes to the tests."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

PATHS = (Path(__file__).parent, Path(__file__).parents[1] / "crash")
sys.path[:0] = map(str, PATHS)

if TYPE_CHECKING:
    from crashlab.pool import Pool


@pytest.fixture(scope="session")
def sync_laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Pool"]:
    from crashlab.pool import Pool

    with Pool(tmp_path_factory.mktemp("syncs"), "synclab.zygote", PATHS) as pool:
        yield pool
