"""Curves of results: a figure over policy versions, a strip an eval, as PNG.

What was measured of weights that a rewind dropped is drawn faint. An eval that was missed is a cross on the axis, at
the version that it was asked of.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from dataserver.errors import InvalidConfigError, OutOfRangeError
from orchestrator.results.records import EvalResult, EvalState

_WIDTH_INCHES: Final = 8.0
_STRIP_INCHES: Final = 2.6
_COLOURS: Final = ("#1f5fa8", "#c2571a", "#2f8f4e", "#8a3f9e", "#9a7b14", "#555555")


def draw_curves(results: Sequence[EvalResult], path: Path, *, figure: str = "mean") -> None:
    """Draw `figure` of all finished results: one strip an eval, one line a run.

    Raises `OutOfRangeError` where none has it, `InvalidConfigError` where nothing can be drawn or written.
    """
    shown = [each for each in results if each.state is EvalState.DONE and figure in each.figures]
    if not shown:
        known = ", ".join(sorted({name for each in results for name in each.figures})) or "none"
        raise OutOfRangeError(f"no result has the figure {figure!r}; figures that are there: {known}")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - an extra, and slow to import
        from matplotlib.figure import Figure  # noqa: PLC0415
        from matplotlib.ticker import MaxNLocator  # noqa: PLC0415
    except ImportError as error:
        raise InvalidConfigError("curves need matplotlib: pip install 'dataserver[orchestrator]'") from error
    names, runs = _ordered(each.name for each in shown), _ordered(each.run for each in shown)
    picture = Figure(figsize=(_WIDTH_INCHES, _STRIP_INCHES * len(names) + 0.6), layout="constrained")
    FigureCanvasAgg(picture)
    for axes, name in zip(picture.subplots(len(names), 1, squeeze=False)[:, 0], names, strict=True):
        for number, run in enumerate(runs):
            mine = [each for each in shown if each.name == name and each.run == run]
            colour = _COLOURS[number % len(_COLOURS)]
            standing = standing_results(mine)
            dropped = [each for each in mine if each not in standing]
            axes.plot(*_points(dropped, figure), "o", color=colour, alpha=0.25, markersize=4)
            axes.plot(*_points(standing, figure), "o-", color=colour, markersize=4, linewidth=1.5, label=run)
            for due in missed_dues(results, name=name, run=run):
                # Beside the data, so the layout need not make room for it.
                cross = axes.plot(due, 0.0, "x", color=colour, transform=axes.get_xaxis_transform(), clip_on=False)
                cross[0].set_in_layout(False)
        axes.set_title(name, loc="left", fontsize="medium")
        axes.set_ylabel(figure)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=True, alpha=0.3)
        if len(runs) > 1:
            axes.legend(frameon=False)
    axes.set_xlabel("policy version (optimizer steps)")
    try:
        picture.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise InvalidConfigError(f"cannot write the picture {path}: {error.strerror}") from error


def standing_results(results: Sequence[EvalResult]) -> list[EvalResult]:
    """Of one run and one eval, those of weights that stand, in the order of versions.

    The results alone do not say where an attempt began: one drops what earlier attempts measured at its own first
    version and above.
    """
    standing: list[EvalResult] = []
    for each in sorted(results, key=lambda each: (each.version.attempt, each.version.number)):
        version = each.version
        standing = [
            other
            for other in standing
            if other.version.number < version.number or other.version.attempt == version.attempt
        ]
        standing.append(each)
    return standing


def missed_dues(results: Sequence[EvalResult], *, name: str, run: str) -> list[int]:
    """The versions that an eval of a run was asked of and never measured at."""
    mine = (each for each in results if (each.name, each.run) == (name, run))
    return sorted(each.due for each in mine if each.state is EvalState.MISSED)


def _ordered(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _points(results: Sequence[EvalResult], figure: str) -> tuple[list[int], list[float]]:
    return [each.version.number for each in results], [each.figures[figure] for each in results]
