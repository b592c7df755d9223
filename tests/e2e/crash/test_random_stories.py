"""Stories that chance writes. A failure names its seed: `laboratory.run("random_story", seed=...)` tells it again."""

import random

import pytest
from crashlab.pool import Pool

STORIES = 24
STORIES_OF_THE_SHORT_TEST = 4


def tell(laboratory: Pool, seeds: list[int]) -> None:
    results = laboratory.run_all("random_story", [{"seed": seed} for seed in seeds])
    complaints = [complaint for each in results for complaint in each]
    assert not complaints, "\n".join(complaints)


def test_random_crashes_lose_and_repeat_nothing(laboratory: Pool):
    tell(laboratory, list(range(STORIES_OF_THE_SHORT_TEST)))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_random_crashes_with_fresh_seeds_lose_and_repeat_nothing(laboratory: Pool):
    tell(laboratory, [random.randrange(2**32) for _ in range(STORIES)])
