"""Puts the Slurm laboratory on the path and lends its cluster to the tests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from slurmlab.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Cluster"]:
    from slurmlab.cluster import Cluster, missing_programs

    if missing := missing_programs():
        absent = (
            f"{', '.join(missing)}: not installed; on Debian and Ubuntu: apt-get install slurmctld slurmd slurm-client"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(absent)
        pytest.skip(absent)
    with Cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster
