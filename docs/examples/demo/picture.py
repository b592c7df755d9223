"""The loss and the rewards of evals as PNGs, and as a line of blocks for the terminal."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: list[float]) -> str:
    """One block a value, the lowest for the smallest value."""
    low, high = min(values), max(values)
    steps = (high - low) or 1.0
    return "".join(BLOCKS[round((value - low) / steps * (len(BLOCKS) - 1))] for value in values)


def draw_loss(path: Path, attempts: list[list[tuple[int, float]]], notes: dict[int, str]) -> None:
    """Draw (step, loss) of each attempt, and what happened at which step."""
    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    for number, points in enumerate(attempts, start=1):
        axes.plot(*zip(*points, strict=True), marker=".", label=f"attempt {number}")
    # The curve falls, so the upper right is free; one line of text for each note, the latest on top.
    for line, step in enumerate(sorted(notes, reverse=True)):
        axes.axvline(step, color="grey", linestyle=":", linewidth=1)
        axes.annotate(
            f" {notes[step]}",
            (step, 0.97 - 0.06 * line),
            xycoords=("data", "axes fraction"),
            va="top",
            fontsize=8,
            bbox={"boxstyle": "square,pad=0.1", "color": "white"},
        )
    axes.set(xlabel="optimizer step", ylabel="loss (nats per target)", title="One epoch, two attempts")
    axes.legend(loc="lower left")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_rewards(path: Path, rewards: dict[str, list[tuple[int, float]]], title: str) -> None:
    """Draw (version, mean reward) of each eval."""
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    for name, points in rewards.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set(xlabel="policy version (optimizer steps)", ylabel="mean reward", ylim=(0, 1), title=title)
    axes.legend(loc="upper left")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)
