"""Pictures of a plan: ranks by rounds, where the height of a bar is the cost of a micro-batch.

A round lasts as long as its highest bar; what is white above the others is time that ranks wait.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dataserver.packing.cost import CostModel
    from dataserver.planning.plan import Plan

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"

# More columns or lines than these do not fit on a terminal.
_RANKS_SHOWN: Final = 128
_ROUNDS_SHOWN: Final = 32


def text_picture(plan: "Plan", cost: "CostModel") -> str:
    """One line a round, one character a rank, and how much longer the round lasts than its mean."""
    from dataserver.packing.figures import cost_table

    table = cost_table(plan.lengths, plan.rounds, cost)
    highest = max(1, int(table.max()))
    lines = []
    for number, row in enumerate(table[:_ROUNDS_SHOWN].tolist()):
        bars = "".join(_BLOCKS[-(-value * (len(_BLOCKS) - 1) // highest)] for value in row[:_RANKS_SHOWN])
        inflation = max(row) * len(row) / max(1, sum(row))
        lines.append(f"  round {number:>3} |{bars}| {inflation:.3f}")
    hidden = [
        f"{whole - shown} more {name}"
        for name, whole, shown in (("rounds", table.shape[0], _ROUNDS_SHOWN), ("ranks", table.shape[1], _RANKS_SHOWN))
        if whole > shown
    ]
    return "\n".join([*lines, *([f"  and {', '.join(hidden)}"] if hidden else [])])


def draw(plan: "Plan", cost: "CostModel", path: Path) -> None:
    """Write the picture as PNG; raises `InvalidConfigError` without matplotlib or where nothing can be written."""
    from dataserver.cli.pictures import new_figure, save_png
    from dataserver.packing.figures import cost_table

    table = cost_table(plan.lengths, plan.rounds, cost) / 1.0
    table /= table.mean()
    rounds, ranks = table.shape
    figure = new_figure(12, 1 + 0.8 * min(rounds, _ROUNDS_SHOWN))
    axes = figure.subplots(min(rounds, _ROUNDS_SHOWN), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for number, axis in enumerate(axes):
        axis.bar(range(ranks), table[number], width=0.9, color="#4878a8")
        axis.axhline(table[number].max(), color="#c04040", linewidth=0.8)
        axis.set_ylabel(f"{number}", rotation=0, va="center")
        axis.set_yticks([])
    axes[-1].set_xlabel("rank; one strip a round, bars are costs, the line is how long the round lasts")
    figure.suptitle(f"step {plan.step}: round inflation {plan.figures.round_inflation:.4f}")
    save_png(figure, path)
