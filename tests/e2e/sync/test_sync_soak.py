"""Stories of weights on demand that chance writes. A failure names its seed:
`sync_laboratory.run("random_story", seed=...)` tells it again."""

import os
import random

import pytest
from crashlab.pool import Pool

SEEDS_OF_THE_SHORT_TEST = (1, 2, 3)
STORIES = int(os.environ.get("SYNC_STORIES", "30"))


def tell(laboratory: Pool, seeds: list[int]) -> None:
    results = laboratory.run_all("random_story", [{"seed": seed} for seed in seeds])
    complaints = [complaint for each in results for complaint in each]
    assert not complaints, "\n".join(complaints)


@pytest.mark.timeout(900)
def test_random_kills_stops_and_losses_tear_and_lose_nothing(sync_laboratory: Pool):
    tell(sync_laboratory, list(SEEDS_OF_THE_SHORT_TEST))


@pytest.mark.slow
@pytest.mark.timeout(60 * STORIES)
def test_random_kills_stops_and_losses_with_fresh_seeds_tear_and_lose_nothing(sync_laboratory: Pool):
    tell(sync_laboratory, [random.randrange(2**32) for _ in range(STORIES)])
