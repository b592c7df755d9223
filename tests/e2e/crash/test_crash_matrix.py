"""Every sample is consumed exactly once, whoever is killed wherever, at any world size before and after."""

from itertools import product

import pytest
from crashlab.pool import Pool

POINTS = (
    "before_seal", "after_seal", "mid_stream", "after_optimizer_step",
    "inside_checkpoint", "before_commit", "after_commit",
)  # fmt: skip
VICTIMS = ("server", "one_rank", "all_ranks", "both")
WORLD_SIZES = (1, 2, 3, 4)
CHANGES = tuple(product(WORLD_SIZES, WORLD_SIZES))

SAMPLE_CELLS_PER_POINT = 6


def cells(point: str) -> list[dict[str, object]]:
    """All cells of one crash point: each victim with each change of the world size."""
    return [
        {"point": point, "victim": victim, "before": before, "after": after}
        for victim in VICTIMS
        for before, after in CHANGES
    ]


def sample(point: str) -> list[dict[str, object]]:
    """Some cells of one crash point: all victims, and over all points every change of the world size."""
    first = POINTS.index(point) * SAMPLE_CELLS_PER_POINT
    chosen = []
    for number in range(first, first + SAMPLE_CELLS_PER_POINT):
        before, after = CHANGES[number * 5 % len(CHANGES)]
        victim = VICTIMS[(number + number // len(CHANGES)) % len(VICTIMS)]
        chosen.append({"point": point, "victim": victim, "before": before, "after": after})
    return chosen


def examine(laboratory: Pool, chosen: list[dict[str, object]]) -> None:
    """Run the cells; `AssertionError` with every complaint of every cell."""
    results = zip(chosen, laboratory.run_all("crash_and_resume", chosen), strict=True)
    complaints = [f"{cell}: {complaint}" for cell, each in results for complaint in each]
    assert not complaints, "\n".join(complaints)


def test_the_sample_covers_each_victim_at_each_point_and_each_change_of_the_world_size():
    chosen = [cell for point in POINTS for cell in sample(point)]
    assert {(cell["point"], cell["victim"]) for cell in chosen} == set(product(POINTS, VICTIMS))
    assert {(cell["before"], cell["after"]) for cell in chosen} == set(CHANGES)
    assert sum(len(cells(point)) for point in POINTS) == 448


@pytest.mark.parametrize("point", POINTS)
def test_each_sample_is_consumed_once_over_a_crash(laboratory: Pool, point: str):
    examine(laboratory, sample(point))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("point", POINTS)
def test_each_sample_is_consumed_once_over_any_crash(laboratory: Pool, point: str):
    examine(laboratory, cells(point))
